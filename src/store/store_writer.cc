#include "src/store/store_writer.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/stop_check.h"
#include "src/base/utf8.h"
#include "src/store/new_file.h"
#include "src/store/stored_object.h"
#include "src/store/waiting_parts.h"

namespace layercast {
namespace {

bool IsPart(const VersionRecord& record) { return record.manifest.part().ranks > 1; }

}  // namespace

StoreWriter::StoreWriter(StoreFolder folder, const StoreLimits& limits, FailPoints& failpoints,
                         std::chrono::seconds grace)
    : store_(std::move(folder)), folder_(store_.folder()), limits_(limits), failpoints_(failpoints), grace_(grace) {}

void StoreWriter::Write(const VersionRecord& record, const BytesOfTensor& bytes, const std::stop_token& stop) {
  const Version& version = record.manifest.version();
  if (const std::optional<std::uint32_t> run = KnownRun(record)) {  // else it begins when the objects are there
    const StoredName name = StoredName::Of(version.lineage, *run, version.step);
    if (IsThere(name, record.manifest)) {
      if (IsPart(record)) WaitingParts(folder_, record).Remove();
      return NameLatest(name);
    }
    ExpectNewer(name, version);
  }
  WriteObjects(record.manifest, bytes, stop);
  if (!IsPart(record)) return Show(record);
  const WaitingParts parts(folder_, record);
  parts.Put(failpoints_);
  const std::optional<VersionRecord> whole = parts.Whole();
  if (!whole) return;
  Show(*whole);
  parts.Remove();
}

void StoreWriter::Put(const Digest& digest, std::span<const std::byte> bytes) {
  if (TouchObject(digest, bytes.size())) return;
  WriteOneObject(digest, bytes);
  FlushObjects({folder_.ObjectsFolder(digest)});
}

void StoreWriter::Show(const VersionRecord& record) {
  const Version& version = record.manifest.version();
  const StoredName name = StoredName::Of(version.lineage, RunNumber(record), version.step);
  WriteRecord(name, record);
  NameLatest(name);
  Trim(store_, version.lineage, limits_);
  Sweep(store_, grace_);
}

void StoreWriter::WriteRecord(const StoredName& name, const VersionRecord& record) {
  const Version& version = record.manifest.version();
  NewFile file(folder_.tmp(), failpoints_);
  file.Write(record.Encode());
  file.Flush();
  if (!file.Link(folder_.versions() / name.ToString()) && !IsThere(name, record.manifest)) ExpectNewer(name, version);
  FlushFolder(folder_.versions(), failpoints_);
}

// Whether the store has the version, or one of which that is a part.
bool StoreWriter::IsThere(const StoredName& name, const Manifest& manifest) const {
  const auto bytes = StoreFolder::Read(folder_.versions() / name.ToString());
  if (!bytes) return false;
  const VersionRecord there = VersionRecord::Decode(*bytes);
  const VersionPart& part = manifest.part();
  if (part.ranks == 1) return there.manifest.version() == manifest.version();
  return there.parts.size() == static_cast<std::size_t>(part.ranks) &&
         there.parts[static_cast<std::size_t>(part.rank)].version() == manifest.version();
}

// The number of the record's run in its lineage; nullopt: it is a new one.
std::optional<std::uint32_t> StoreWriter::KnownRun(const VersionRecord& record) const {
  const std::string& lineage = record.manifest.version().lineage;
  const std::vector<RunRecord> runs = store_.Runs(DigestOfLineage(lineage));
  if (runs.empty()) return std::nullopt;
  if (record.run.empty() || runs.back().run == record.run) return static_cast<std::uint32_t>(runs.size());
  if (std::ranges::find(runs, record.run, &RunRecord::run) == runs.end()) return std::nullopt;
  throw Error(ErrorCode::kInvalidArgument, folder_.ToString() + ": lineage " + Quote(lineage) + ": expected run " +
                                               Quote(runs.back().run) + " or a new one, got " + Quote(record.run) +
                                               ", which it has followed");
}

// The same, of a run that begins with this version if it is new.
std::uint32_t StoreWriter::RunNumber(const VersionRecord& record) {
  const Version& version = record.manifest.version();
  const Digest lineage = DigestOfLineage(version.lineage);
  for (;;) {
    if (const std::optional<std::uint32_t> known = KnownRun(record)) return *known;
    const std::size_t number = store_.Runs(lineage).size() + 1;
    NewFile file(folder_.tmp(), failpoints_);
    file.Write(RunRecord{record.run, version.step}.Encode());
    file.Flush();
    file.Link(folder_.RunFile(lineage, number));  // if another publisher's run is there, it is looked at
    FlushFolder(folder_.runs(), failpoints_);
  }
}

void StoreWriter::ExpectNewer(const StoredName& name, const Version& version) const {
  std::optional<StoredName> last;
  for (const std::string& text : StoreFolder::NamesIn(folder_.versions())) {
    const auto one = StoredName::FromString(text);
    if (one && one->lineage == name.lineage && one->run == name.run) last = std::max(last, one);
  }
  if (!last || version.step > last->step) return;
  throw Error(ErrorCode::kInvalidArgument, folder_.ToString() + ": lineage " + Quote(version.lineage) +
                                               ": expected a step after " + std::to_string(last->step) + ", got " +
                                               version.ToString());
}

void StoreWriter::WriteObjects(const Manifest& manifest, const BytesOfTensor& bytes, const std::stop_token& stop) {
  // Until all are there at once: those that were there long ago may be swept while others are written.
  for (bool all = false; !all;) {
    all = true;
    std::set<std::filesystem::path> folders;
    for (std::uint32_t tensor = 0; tensor < manifest.size(); ++tensor) {
      ThrowIfStopped(stop, "writing " + manifest.version().ToString());
      const Digest& digest = manifest.entry(tensor).digest;
      if (TouchObject(digest, BytesOf(manifest, tensor))) continue;
      WriteOneObject(digest, bytes(tensor));
      folders.insert(folder_.ObjectsFolder(digest));
      all = false;
    }
    FlushObjects(std::move(folders));
  }
}

// Returns whether it is there. From now on nobody sweeps it, for a while.
bool StoreWriter::TouchObject(const Digest& digest, std::uint64_t tensor_bytes) const {
  const std::filesystem::path path = folder_.Object(digest);
  if (::utimensat(AT_FDCWD, path.c_str(), nullptr, 0) != 0) {
    if (errno == ENOENT || errno == ESTALE) return false;
    FailOnFile(path, "cannot touch", errno);
  }
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && static_cast<std::uint64_t>(status.st_size) == ObjectBytes(tensor_bytes);
}

void StoreWriter::WriteOneObject(const Digest& digest, std::span<const std::byte> bytes) {
  const std::filesystem::path folder = folder_.ObjectsFolder(digest);
  std::error_code why;
  std::filesystem::create_directory(folder, why);
  if (why) FailOnFile(folder, "cannot make this folder", why.value());
  NewFile file(folder_.tmp(), failpoints_);
  WriteObject(bytes, digest, file);
  file.Flush();
  file.Rename(folder_.Object(digest));
}

void StoreWriter::FlushObjects(std::set<std::filesystem::path> folders) {
  if (folders.empty()) return;
  folders.insert(folder_.objects());
  for (const std::filesystem::path& folder : folders) FlushFolder(folder, failpoints_);
}

// A hint for readers whose list of the folder is stale.
void StoreWriter::NameLatest(const StoredName& name) {
  NewFile file(folder_.tmp(), failpoints_);
  file.Write(name.ToString());
  file.Flush();
  file.Rename(folder_.latest());
  FlushFolder(folder_.root(), failpoints_);
}

}  // namespace layercast

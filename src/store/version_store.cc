#include "src/store/version_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ranges>
#include <set>
#include <thread>
#include <utility>

#include "layercast/error.h"
#include "src/base/deadline.h"
#include "src/base/log.h"
#include "src/base/utf8.h"
#include "src/store/new_file.h"
#include "src/store/stored_object.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kLook{50};  // how often a missing object is looked for

// What names a version in errors, where only a part of its name is known.
std::string Wanted(const std::string& lineage, std::optional<std::uint64_t> step, const Digest& digest) {
  std::string text = lineage.empty() ? "any lineage" : Quote(lineage);
  if (step) text += " at step " + std::to_string(*step);
  if (digest) text += " with digest " + digest.ToHex();
  return text;
}

bool Matches(const StoredVersion& stored, const std::string& lineage, std::optional<std::uint64_t> step,
             const Digest& digest) {
  const Version& version = stored.version();
  if (!lineage.empty() && version.lineage != lineage) return false;
  if (step && version.step != *step) return false;
  return digest ? version.digest == digest : !stored.shadowed;
}

}  // namespace

std::vector<RunRecord> VersionStore::Runs(const Digest& lineage) const {
  std::vector<RunRecord> runs;  // opened by name: a list may be stale
  while (const auto bytes = StoreFolder::Read(folder_.RunFile(lineage, runs.size() + 1))) {
    runs.push_back(RunRecord::Decode(*bytes));
  }
  return runs;
}

std::optional<StoredVersion> VersionStore::Read(const StoredName& name) const {
  const auto bytes = StoreFolder::Read(folder_.versions() / name.ToString());
  if (!bytes) return std::nullopt;
  StoredVersion stored{.name = name, .record = VersionRecord::Decode(*bytes)};
  const Version& version = stored.version();
  if (StoredName::Of(version.lineage, name.run, version.step) != name) {
    throw Error(ErrorCode::kCorrupt,
                folder_.ToString() + ": record " + name.ToString() + " is of " + version.ToString());
  }
  stored.pinned = std::filesystem::exists(folder_.pins() / name.ToString());
  return stored;
}

std::vector<StoredName> VersionStore::Names() const {
  std::set<StoredName> names;
  for (const std::string& text : StoreFolder::NamesIn(folder_.versions())) {
    if (const auto name = StoredName::FromString(text)) names.insert(*name);
  }
  if (const auto latest = StoreFolder::Read(folder_.latest())) {  // which a stale list may not have yet
    const std::string_view text(reinterpret_cast<const char*>(latest->data()), latest->size());
    if (const auto name = StoredName::FromString(text)) names.insert(*name);
  }
  return {names.begin(), names.end()};
}

std::string VersionStore::Missing(const VersionRecord& record, Sizes& sizes) const {
  for (const Manifest& manifest : record.held()) {
    if (std::string missing = Missing(manifest, sizes); !missing.empty()) return missing;
  }
  return "";
}

std::string VersionStore::Missing(const Manifest& manifest, Sizes& sizes) const {
  for (std::uint32_t tensor = 0; tensor < manifest.size(); ++tensor) {
    const auto entry = manifest.entry(tensor);
    const auto [at, is_new] = sizes.try_emplace(entry.digest);
    if (is_new) {
      struct stat status {};
      if (::stat(folder_.Object(entry.digest).c_str(), &status) == 0) {
        at->second = static_cast<std::uint64_t>(status.st_size);
      } else if (errno != ENOENT && errno != ESTALE) {
        FailOnFile(folder_.Object(entry.digest), "cannot stat", errno);
      }
    }
    const std::uint64_t expected = ObjectBytes(BytesOf(manifest, tensor));
    if (at->second == expected) continue;
    return Quote(entry.spec.name) + ": object " + entry.digest.ToHex() + ": expected " + std::to_string(expected) +
           " bytes, got " + (at->second ? std::to_string(*at->second) : "no such file");
  }
  return "";
}

std::vector<StoredVersion> VersionStore::List() const {
  std::vector<StoredVersion> list;
  Sizes sizes;
  std::map<Digest, std::vector<RunRecord>> runs;
  std::map<Digest, std::uint64_t> newest;  // by lineage: when
  for (const StoredName& name : Names()) {
    try {
      std::optional<StoredVersion> stored = Read(name);
      if (!stored || !Missing(stored->record, sizes).empty()) continue;
      if (!runs.contains(name.lineage)) runs[name.lineage] = Runs(name.lineage);
      const auto later = runs[name.lineage] | std::views::drop(name.run);
      stored->shadowed = std::ranges::any_of(later, [&](const RunRecord& run) { return run.first_step <= name.step; });
      newest[name.lineage] = std::max(newest[name.lineage], stored->record.published_ms);
      list.push_back(*std::move(stored));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCorrupt) throw;
      log::warn("{}: {} is passed over: {}", folder_.ToString(), name.ToString(), error.what());
    }
  }
  std::ranges::stable_sort(list, {}, [&](const StoredVersion& stored) { return newest.at(stored.name.lineage); });
  std::set<Digest> seen;
  for (StoredVersion& stored : list) {
    for (const Manifest& manifest : stored.record.held()) {
      for (const auto& entry : manifest.entries()) {
        if (seen.insert(entry.digest).second) stored.added_bytes += *sizes.at(entry.digest);
      }
    }
  }
  return list;
}

// The lineage's newest run that began at that step or before owns it, whether it has it or not. A digest may be an
// older run's.
std::optional<StoredVersion> VersionStore::AtStep(const std::string& lineage, std::uint64_t step,
                                                  const Digest& digest) const {
  const std::vector<RunRecord> runs = Runs(DigestOfLineage(lineage));
  for (std::size_t run = runs.size(); run > 0; --run) {
    if (runs[run - 1].first_step > step) continue;
    std::optional<StoredVersion> stored = Read(StoredName::Of(lineage, static_cast<std::uint32_t>(run), step));
    if (!digest || (stored && stored->version().digest == digest)) return stored;
  }
  return std::nullopt;
}

StoredVersion VersionStore::Find(const std::string& lineage, std::optional<std::uint64_t> step,
                                 const Digest& digest) const {
  if (!lineage.empty() && step) {
    if (std::optional<StoredVersion> stored = AtStep(lineage, *step, digest)) {
      AwaitObjects(*stored);
      return *std::move(stored);
    }
  }
  const std::vector<StoredVersion> list = List();
  for (const StoredVersion& stored : list | std::views::reverse) {
    if (Matches(stored, lineage, step, digest)) return stored;
  }
  std::string all;
  for (const StoredVersion& stored : list) all += (all.empty() ? "" : ", ") + stored.version().ToString();
  throw Error(ErrorCode::kNotFound, folder_.ToString() + " has no version of " + Wanted(lineage, step, digest) +
                                        "; it has: " + (all.empty() ? "none" : all));
}

StoredVersion VersionStore::Find(const StoredName& name) const {
  std::optional<StoredVersion> stored = Read(name);
  if (!stored) throw Error(ErrorCode::kNotFound, folder_.ToString() + " has no version " + name.ToString());
  AwaitObjects(*stored);
  return *std::move(stored);
}

void VersionStore::AwaitObjects(const StoredVersion& version) const {
  const Deadline deadline = Deadline::After(shown_within_);
  for (;;) {
    Sizes sizes;
    const std::string missing = Missing(version.record, sizes);
    if (missing.empty()) return;
    if (deadline.Passed()) {
      throw Error(ErrorCode::kCorrupt,
                  folder_.ToString() + ": " + version.version().ToString() + " is not whole: " + missing);
    }
    std::this_thread::sleep_for(std::min(kLook, deadline.Remaining()));
  }
}

void VersionStore::Pin(const StoredName& name, bool pin) const {
  const std::filesystem::path path = folder_.pins() / name.ToString();
  FailPoints none;
  if (pin) {
    NewFile file(folder_.tmp(), none);
    file.Flush();
    file.Link(path);
    FlushFolder(folder_.pins(), none);
  }
  const bool there = std::filesystem::exists(folder_.versions() / name.ToString());
  if (!pin || !there) ::unlink(path.c_str());
  if (!there) throw Error(ErrorCode::kNotFound, folder_.ToString() + " has no version " + name.ToString());
}

void VersionStore::Evict(const StoredName& name) const {
  const std::filesystem::path from = folder_.versions() / name.ToString();
  const std::filesystem::path to = folder_.evicted() / name.ToString();
  const auto is_pinned = [&] { return std::filesystem::exists(folder_.pins() / name.ToString()); };
  const Error pinned(ErrorCode::kFailedPrecondition,
                     folder_.ToString() + ": version " + name.ToString() + " is pinned: unpin it before it is evicted");
  if (is_pinned()) throw pinned;
  ::utimensat(AT_FDCWD, from.c_str(), nullptr, 0);  // its time in `evicted` begins now
  if (::rename(from.c_str(), to.c_str()) != 0) FailOnFile(from, "cannot evict", errno);
  if (is_pinned()) {  // in the meantime
    ::rename(to.c_str(), from.c_str());
    throw pinned;
  }
  FailPoints none;
  FlushFolder(folder_.versions(), none);
}

std::vector<VersionStore::Checked> VersionStore::Check(WorkerPool& pool) const {
  std::vector<Checked> all;
  std::map<Digest, std::string> wrong;  // what is wrong with each object
  for (const StoredName& name : Names()) {
    Checked checked{.name = name.ToString(), .wrong = {}};
    try {
      const std::optional<StoredVersion> stored = Read(name);
      if (!stored) continue;
      checked.name = stored->version().ToString();
      for (const Manifest& manifest : stored->record.held()) CheckObjects(manifest, wrong, checked, pool);
    } catch (const Error& error) {
      checked.wrong.emplace_back(error.what());
    }
    all.push_back(std::move(checked));
  }
  return all;
}

void VersionStore::CheckObjects(const Manifest& manifest, std::map<Digest, std::string>& wrong, Checked& checked,
                                WorkerPool& pool) const {
  for (std::uint32_t tensor = 0; tensor < manifest.size(); ++tensor) {
    const auto entry = manifest.entry(tensor);
    const auto [at, is_new] = wrong.try_emplace(entry.digest);
    try {
      if (is_new) StoredObject(folder_.Object(entry.digest), entry.digest, BytesOf(manifest, tensor)).CheckAll(pool);
    } catch (const Error& error) {
      at->second = error.what();
    }
    if (!at->second.empty()) checked.wrong.push_back(Quote(entry.spec.name) + ": " + at->second);
  }
}

}  // namespace layercast

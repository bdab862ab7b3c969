#include "src/store/store_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <span>
#include <system_error>
#include <utility>

#include "layercast/error.h"
#include "src/base/digest/digest.h"
#include "src/base/unique_fd.h"
#include "src/base/utf8.h"
#include "src/store/new_file.h"

namespace layercast {
namespace {

constexpr std::string_view kFormat = "layercast store 1\n";
constexpr const char* kFormatFile = "store";

template <class Number>
bool ParseAll(std::string_view text, Number& number) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [stop, error] = std::from_chars(begin, end, number);
  return error == std::errc() && stop == end;
}

void MakeFolder(const std::filesystem::path& folder) {
  std::error_code why;
  std::filesystem::create_directories(folder, why);
  if (why) FailOnFile(folder, "cannot make this folder", why.value());
}

}  // namespace

std::chrono::nanoseconds AgeOf(const std::filesystem::path& path, std::int64_t now) {
  // Opening it has a network's file system ask for the time that holds now.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) FailOnFile(path, "cannot stat", errno);
  const std::int64_t written = status.st_mtim.tv_sec * std::int64_t{1'000'000'000} + status.st_mtim.tv_nsec;
  return std::chrono::nanoseconds(now - written);
}

Digest DigestOfLineage(const std::string& lineage) { return DigestOf(std::as_bytes(std::span(lineage))); }

StoredName StoredName::Of(const std::string& lineage, std::uint32_t run, std::uint64_t step) {
  return {DigestOfLineage(lineage), run, step};
}

std::optional<StoredName> StoredName::FromString(std::string_view text) {
  const std::size_t first = text.find('.');
  const std::size_t second = text.find('.', first + 1);
  if (first == text.npos || second == text.npos) return std::nullopt;
  const std::optional<Digest> lineage = Digest::FromHex(text.substr(0, first));
  StoredName name;
  if (!lineage || !ParseAll(text.substr(first + 1, second - first - 1), name.run)) return std::nullopt;
  if (!ParseAll(text.substr(second + 1), name.step)) return std::nullopt;
  name.lineage = *lineage;
  if (name.ToString() != text) return std::nullopt;
  return name;
}

std::string StoredName::ToString() const {
  return lineage.ToHex() + "." + std::to_string(run) + "." + std::to_string(step);
}

StoreFolder StoreFolder::Make(const std::filesystem::path& root, FailPoints& failpoints) {
  const StoreFolder made(root);
  if (!std::filesystem::exists(root / kFormatFile)) made.MakeFormatFile(failpoints);
  for (const auto& folder : {made.objects(), made.versions(), made.evicted(), made.runs(), made.parts(), made.pins(),
                             made.leases(), made.tmp()}) {
    MakeFolder(folder);
  }
  FlushFolder(root, failpoints);
  return Open(root);
}

// Two may make it at once.
void StoreFolder::MakeFormatFile(FailPoints& failpoints) const {
  MakeFolder(root_);
  if (!std::ranges::all_of(NamesIn(root_), [](const std::string& name) { return name == "tmp"; })) {
    throw Error(ErrorCode::kInvalidArgument,
                Quote(root_.native()) + ": expected a store, or an empty folder to make one of");
  }
  MakeFolder(tmp());
  NewFile format(tmp(), failpoints);
  format.Write(kFormat);
  format.Flush();
  format.Link(root_ / kFormatFile);
}

StoreFolder StoreFolder::Open(const std::filesystem::path& root) {
  const std::optional<std::vector<std::byte>> format = Read(root / kFormatFile);
  if (!format) throw Error(ErrorCode::kNotFound, Quote(root.native()) + " is no store of versions");
  if (!std::ranges::equal(*format, std::as_bytes(std::span(kFormat)))) {
    throw Error(ErrorCode::kUnsupported, Quote(root.native()) + ": expected a store of format 1, got another one");
  }
  return StoreFolder(root);
}

std::string StoreFolder::ToString() const { return "store " + Quote(root_.native()); }

std::vector<std::string> StoreFolder::NamesIn(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code why;
  for (std::filesystem::directory_iterator at(folder, why), end; !why && at != end; at.increment(why)) {
    names.push_back(at->path().filename().native());
  }
  if (why) FailOnFile(folder, "cannot list", why.value());
  std::ranges::sort(names);
  return names;
}

std::optional<std::vector<std::byte>> StoreFolder::Read(const std::filesystem::path& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file && (errno == ENOENT || errno == ESTALE)) return std::nullopt;
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) FailOnFile(path, "cannot open", errno);
  std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  std::size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t more = ::read(file.get(), bytes.data() + got, bytes.size() - got);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) FailOnFile(path, "cannot read", errno);
    if (more == 0) break;
    got += static_cast<std::size_t>(more);
  }
  bytes.resize(got);
  return bytes;
}

}  // namespace layercast

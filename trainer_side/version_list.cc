#include "trainer_side/version_list.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "layercast/error.h"
#include "src/base/run_at.h"
#include "src/base/utf8.h"
#include "src/net/keys/keys.h"
#include "src/session/ask/publisher_status.h"

namespace layercast {
namespace {

// "run-17@42", "run-17@42:0123456789abcdef" with as many digits as one likes, or the digits alone.
bool IsCalled(const KeptVersion& kept, std::string_view text) {
  const std::string name = RunAt(kept.version);
  const std::string digest = kept.version.digest.ToHex();
  if (IsDigits(text)) return digest.starts_with(text);
  if (text == name) return !kept.shadowed;
  if (!text.starts_with(name + ":")) return false;
  const std::string_view digits = text.substr(name.size() + 1);
  return IsDigits(digits) && digest.starts_with(digits);
}

}  // namespace

bool IsDigits(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  constexpr std::size_t kLeast = 8;
  return kLeast <= text.size() && text.size() <= 32 && text.find_first_not_of(kHex) == text.npos;
}

const KeptVersion& VersionList::Named(std::string_view text) const {
  const KeptVersion* found = nullptr;
  for (const KeptVersion& kept : std::views::reverse(versions)) {
    if (kept.evicted || !IsCalled(kept, text)) continue;
    if (found == nullptr) found = &kept;
    if (found->version.digest == kept.version.digest || found->version.step == kept.version.step) continue;
    throw Error(ErrorCode::kInvalidArgument, Quote(text) + " are digits of several digests: " +
                                                 kept.version.ToString() + ", " + found->version.ToString());
  }
  if (found != nullptr) return *found;
  std::string all;
  for (const KeptVersion& kept : versions) {
    if (!kept.evicted) all += (all.empty() ? "" : ", ") + kept.version.ToString();
  }
  throw Error(ErrorCode::kNotFound,
              "version " + Quote(text) + " is not kept here; kept: " + (all.empty() ? "none" : all));
}

VersionList ToVersionList(const wire::VersionsAnswer& answer) {
  VersionList list{.retained_versions = answer.retained_versions,
                   .retained_bytes = answer.retained_bytes,
                   .memory_bytes = answer.memory_bytes,
                   .versions = {}};
  for (const wire::KeptVersion& kept : answer.versions) {
    list.versions.push_back({.version = {kept.lineage, kept.step, kept.digest},
                             .run = kept.run,
                             .mode = kept.stream ? PublishMode::kStream : PublishMode::kSnapshot,
                             .bytes = kept.bytes,
                             .added_bytes = kept.added_bytes,
                             .readers = static_cast<int>(kept.readers),
                             .published = std::chrono::system_clock::time_point(
                                 std::chrono::milliseconds(static_cast<std::int64_t>(kept.published_ms))),
                             .pinned = kept.pinned,
                             .evicted = kept.evicted,
                             .shadowed = kept.shadowed,
                             .durability = static_cast<Durability>(kept.durability)});
  }
  return list;
}

VersionList RemotePublisher::Versions() const {
  return ToVersionList(AskVersions(endpoint_, Keys::From(keys_), wire::VersionsRequest{}, Deadline::After(timeout_)));
}

VersionList RemotePublisher::Pin(const Version& version, bool pin) const {
  const wire::PinVersion order{version.lineage, version.step, version.digest, pin};
  return ToVersionList(AskVersions(endpoint_, Keys::From(keys_), order, Deadline::After(timeout_)));
}

VersionList RemotePublisher::Evict(const Version& version) const {
  const wire::EvictVersion order{version.lineage, version.step, version.digest};
  return ToVersionList(AskVersions(endpoint_, Keys::From(keys_), order, Deadline::After(timeout_)));
}

Version RemotePublisher::PublishFolder(const CheckpointSource& folder, const PublishOptions& options) const {
  const wire::PublishedFolder published = OrderFolder(endpoint_, Keys::From(keys_),
                                                      {.path = folder.path,
                                                       .load_format = folder.load_format,
                                                       .lineage = options.lineage,
                                                       .step = options.step,
                                                       .run = options.run.value_or("")},
                                                      Deadline::After(timeout_));
  return {published.lineage, published.step, published.digest};
}

}  // namespace layercast

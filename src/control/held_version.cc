#include "src/control/held_version.h"

#include <algorithm>
#include <exception>
#include <ranges>
#include <utility>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/base/run_at.h"
#include "src/session/ask/publisher_status.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kToLetGo{5'000};

Version NameOf(const wire::KeptVersion& kept) { return {kept.lineage, kept.step, kept.digest}; }

bool IsWanted(const wire::KeptVersion& kept, const std::optional<Version>& wanted) {
  if (kept.evicted) return false;
  if (!wanted) return !kept.shadowed;
  if (wanted->lineage != kept.lineage || wanted->step != kept.step) return false;
  return wanted->digest ? wanted->digest == kept.digest : !kept.shadowed;
}

// The newest that is wanted.
Version Find(const std::string& publisher, const wire::VersionsAnswer& answer, const std::optional<Version>& wanted) {
  std::string all;
  for (const wire::KeptVersion& kept : answer.versions | std::views::reverse) {
    if (IsWanted(kept, wanted)) return NameOf(kept);
    if (!kept.evicted) all += (all.empty() ? "" : ", ") + NameOf(kept).ToString();
  }
  throw Error(ErrorCode::kNotFound, "publisher " + publisher + ": " + (wanted ? wanted->ToString() : "a version") +
                                        " is not kept here; kept: " + (all.empty() ? "none" : all));
}

}  // namespace

HeldVersion::HeldVersion(const std::vector<std::string>& publishers, const Keys& keys,
                         const std::optional<Version>& wanted, std::chrono::milliseconds lease,
                         const Deadline& deadline)
    : keys_(keys), publishers_(publishers.size()) {
  std::optional<Version> name = wanted;
  for (const std::string& publisher : publishers) {
    const Version found = Find(publisher, AskVersions(publisher, keys_, wire::VersionsRequest{}, deadline), name);
    held_.push_back({publisher, {.lineage = found.lineage, .step = found.step, .digest = found.digest}});
    if (publishers.size() == 1) version_ = found;
    if (!name) name = Version{found.lineage, found.step, {}};  // of which the others have their parts
  }
  if (publishers.size() > 1) version_ = *name;
  HoldAll(lease, deadline);
}

HeldVersion::~HeldVersion() {
  try {
    HoldAll(std::chrono::milliseconds(0), Deadline::After(kToLetGo));
  } catch (const std::exception& error) {
    log::warn("{} is kept for the canary until the publisher's lease ends: {}", RunAt(version_), error.what());
  }
}

bool HeldVersion::AlsoHold(const Version& version, std::chrono::milliseconds lease, const Deadline& deadline) {
  if (publishers_ != 1) return false;
  const auto is_it = [&](const wire::KeptVersion& kept) { return !kept.evicted && NameOf(kept) == version; };
  if (std::ranges::none_of(kept_, is_it)) return false;
  const wire::HoldVersion order{.lineage = version.lineage, .step = version.step, .digest = version.digest};
  const auto same = [&](const Held& held) {
    return held.order.step == order.step && held.order.digest == order.digest;
  };
  if (std::ranges::none_of(held_, same)) held_.push_back({held_.front().publisher, order});
  HoldAll(lease, deadline);
  return true;
}

void HeldVersion::Renew(std::chrono::milliseconds lease, const Deadline& deadline) { HoldAll(lease, deadline); }

void HeldVersion::HoldAll(std::chrono::milliseconds lease, const Deadline& deadline) {
  for (Held& one : held_) {
    one.order.lease_ms = static_cast<std::uint64_t>(lease.count());
    wire::VersionsAnswer answer = AskVersions(one.publisher, keys_, one.order, deadline);
    if (&one == &held_.front()) kept_ = std::move(answer.versions);
  }
}

}  // namespace layercast

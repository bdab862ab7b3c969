#include "engine_side/server/adapters/adapter_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <list>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "tests/engine_side/server/adapters/played_moves.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::Later;
using testing::Load;
using testing::Now;
using testing::Step;
using testing::Take;

TEST(AdapterRegistry, GivesANameToAnotherSlotWhileSequencesKeepTheirs) {
  AdapterRegistry registry(2, AdapterSwitch::kFinish);
  const std::size_t first = Load(registry, "policy", 1);
  std::optional<AdapterLease> old = registry.Lease("policy");
  const std::size_t second = Load(registry, "policy", 2);
  EXPECT_NE(first, second);
  EXPECT_EQ(old->version(), Step(1));
  EXPECT_EQ(registry.Lease("policy").version(), Step(2));
  // The old slot is not given away before its last sequence has ended.
  EXPECT_THAT(ErrorOf([&] { (void)Take(registry, "policy", Now()); }, ErrorCode::kResourceExhausted),
              AllOf(HasSubstr("'policy' (an older version in use)"), HasSubstr("--adapter-slots")));
  old.reset();
  EXPECT_EQ(Take(registry, "policy", Now()).place(), first);
}

TEST(AdapterRegistry, WaitsForASlotThatSequencesHold) {
  AdapterRegistry registry(2, AdapterSwitch::kFinish);
  Load(registry, "policy", 1);
  std::optional<AdapterLease> old = registry.Lease("policy");
  Load(registry, "policy", 2);
  std::future<std::size_t> taken =
      std::async(std::launch::async, [&] { return Take(registry, "policy", Later()).place(); });
  old.reset();
  EXPECT_EQ(taken.get(), 0U);
}

TEST(AdapterRegistry, DoesNotWaitWhereNothingCanBecomeFree) {
  AdapterRegistry registry(1, AdapterSwitch::kFinish);
  Load(registry, "policy", 1);
  EXPECT_THAT(ErrorOf([&] { (void)Take(registry, "policy", Later()); }, ErrorCode::kResourceExhausted),
              HasSubstr("'policy' (served)"));
}

TEST(AdapterRegistry, NeverWritesASlotThatIsNamedPinnedOrInUse) {
  AdapterRegistry registry(3, AdapterSwitch::kFinish);
  Load(registry, "a", 1, /*pin=*/true);
  Load(registry, "b", 1);
  Load(registry, "c", 1);
  const AdapterLease uses_c = registry.Lease("c");
  const AdapterFill d = Take(registry, "d", Now());
  EXPECT_EQ(d.place(), 1U);  // of b
  EXPECT_THAT(ErrorOf([&] { (void)registry.Lease("b"); }, ErrorCode::kNotFound),
              AllOf(HasSubstr("evicted for 'd'"), HasSubstr("'a', 'c'")));
  EXPECT_THAT(ErrorOf([&] { (void)Take(registry, "e", Now()); }, ErrorCode::kResourceExhausted),
              AllOf(HasSubstr("'a' (pinned)"), HasSubstr("'c' (in use)"), HasSubstr("'d' (is being loaded)")));
}

TEST(AdapterRegistry, OneSlotStaysForNewVersions) {
  AdapterRegistry registry(2, AdapterSwitch::kFinish);
  Load(registry, "a", 1);
  Load(registry, "b", 1);
  registry.Pin("a", true);
  EXPECT_THAT(ErrorOf([&] { registry.Pin("b", true); }, ErrorCode::kFailedPrecondition), HasSubstr("1 of 2 slots"));
  registry.Pin("a", false);
  registry.Pin("b", true);
}

TEST(AdapterRegistry, AnUnloadedNameIsGoneAtOnceAndItsSlotWhenSequencesHaveEnded) {
  AdapterRegistry registry(1, AdapterSwitch::kFinish);
  Load(registry, "a", 1);
  std::optional<AdapterLease> lease = registry.Lease("a");
  registry.Unload("a");
  EXPECT_THAT(ErrorOf([&] { registry.Expect("a"); }, ErrorCode::kNotFound), HasSubstr("it was unloaded"));
  ErrorOf([&] { registry.WaitUnused("a", Now()); }, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(registry.List()[0]["state"], "retired");
  lease.reset();
  registry.WaitUnused("a", Now());
  EXPECT_EQ(Load(registry, "b", 1), 0U);
}

TEST(AdapterRegistry, SwitchesSequencesUnderWayAsItIsTold) {
  for (const auto mode : {AdapterSwitch::kFinish, AdapterSwitch::kKeep, AdapterSwitch::kAbort}) {
    AdapterRegistry registry(2, mode);
    Load(registry, "a", 1);
    AdapterLease lease = registry.Lease("a");
    const std::uint64_t before = registry.switches();
    Load(registry, "a", 2);
    EXPECT_GT(registry.switches(), before);
    const std::optional<AdapterLease> renewed = registry.Renewed(std::move(lease));
    EXPECT_EQ(renewed.has_value(), mode != AdapterSwitch::kAbort);
    if (renewed) {
      EXPECT_EQ(renewed->version(), Step(mode == AdapterSwitch::kKeep ? 2 : 1));
    }
    // Only who finishes with the old version still holds its slot.
    EXPECT_EQ(registry.List().size(), mode == AdapterSwitch::kFinish ? 2U : 1U);
  }
}

TEST(AdapterRegistry, NoSequenceFinishesWithAnAdapterWhoseBaseIsGone) {
  AdapterRegistry registry(2, AdapterSwitch::kFinish);
  Load(registry, "a", 1);
  AdapterLease lease = registry.Lease("a");
  registry.Name(Take(registry, "a", Now()), {.name = "a", .version = Step(2)}, false, /*with_base=*/true);
  EXPECT_EQ(registry.Renewed(std::move(lease))->version(), Step(2));
  EXPECT_EQ(registry.List().size(), 1U);
}

TEST(AdapterRegistry, WithoutSlotsSaysWhichFlagGivesSome) {
  AdapterRegistry registry(0, AdapterSwitch::kFinish);
  EXPECT_THAT(ErrorOf([&] { (void)Take(registry, "a", Now()); }, ErrorCode::kFailedPrecondition),
              HasSubstr("--adapter-slots"));
  EXPECT_THAT(ErrorOf([&] { registry.Expect("a"); }, ErrorCode::kFailedPrecondition), HasSubstr("--adapter-slots"));
}

TEST(AdapterRegistry, ASlotThatCouldNotBeFilledIsFreeAgain) {
  AdapterRegistry registry(1, AdapterSwitch::kFinish);
  static_cast<void>(Take(registry, "a", Now()));
  EXPECT_EQ(registry.List().size(), 0U);
  EXPECT_EQ(Load(registry, "b", 1), 0U);
}

// The registry in few lines: names in the order of their last use, without waits and versions.
struct Reference {
  std::size_t slots;
  std::list<std::string> served{};  // the least recently used first
  std::map<std::string, int> uses{};
  std::map<std::string, bool> pinned{};
  int retired = 0;  // slots without a name, still used

  bool Take(const std::string& name) {
    if (served.size() + static_cast<std::size_t>(retired) < slots) return true;
    const auto victim = std::ranges::find_if(
        served, [&](const std::string& each) { return each != name && uses[each] == 0 && !pinned[each]; });
    if (victim == served.end()) return false;
    Forget(*victim);
    return true;
  }
  void Forget(std::string name) {
    served.remove(name);
    uses.erase(name);
    pinned.erase(name);
  }
  void Touch(const std::string& name) {
    served.remove(name);
    served.push_back(name);
  }
};

TEST(AdapterRegistry, EvictsAsAListInOrderOfUseDoes) {
  const std::vector<std::string> names = {"a", "b", "c", "d", "e"};
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    Reference reference{.slots = 3};
    AdapterRegistry registry(3, AdapterSwitch::kFinish);
    std::multimap<std::string, AdapterLease> leases;  // all of served versions: a name in use is not loaded again
    for (int i = 0; i < 200; ++i) {
      const std::string& name = names[random() % names.size()];
      const bool known = std::ranges::find(reference.served, name) != reference.served.end();
      switch (random() % 5) {
        case 0: {
          if (reference.uses[name] > 0) break;
          const bool expected = reference.Take(name);
          if (!expected) {
            ErrorOf([&] { (void)Take(registry, name, Now()); }, ErrorCode::kResourceExhausted);
            break;
          }
          const bool pin = reference.pinned[name];
          Load(registry, name, static_cast<std::uint64_t>(i));
          reference.Touch(name);
          reference.pinned[name] = pin;
          break;
        }
        case 1:
          if (!known) {
            ErrorOf([&] { (void)registry.Lease(name); }, ErrorCode::kNotFound);
            break;
          }
          leases.emplace(name, registry.Lease(name));
          ++reference.uses[name];
          reference.Touch(name);
          break;
        case 2:
          if (const auto lease = leases.find(name); lease != leases.end()) {
            leases.erase(lease);
            --reference.uses[name];
          }
          break;
        case 3: {
          const auto pins = std::ranges::count_if(reference.pinned, [](const auto& each) { return each.second; });
          if (!known || (!reference.pinned[name] && pins + 1 >= 3)) break;
          reference.pinned[name] = !reference.pinned[name];
          registry.Pin(name, reference.pinned[name]);
          break;
        }
        default: break;
      }
      std::vector<std::string> served;
      for (const Json& entry : registry.List()) {
        if (entry["state"] == "served") served.push_back(entry["name"]);
      }
      std::vector<std::string> expected(reference.served.begin(), reference.served.end());
      std::ranges::sort(expected);
      ASSERT_EQ(served, expected) << "seed " << seed << ", step " << i;
    }
  }
}

}  // namespace
}  // namespace layercast

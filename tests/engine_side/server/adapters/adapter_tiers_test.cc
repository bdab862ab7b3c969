#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <list>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/server/adapters/adapter_registry.h"
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
using testing::Promote;
using testing::Step;
using testing::Take;
using For = AdapterRegistry::For;

// {"a": "slot", "b": "host"} of all that have names.
std::map<std::string, std::string> Tiers(const AdapterRegistry& registry) {
  std::map<std::string, std::string> tiers;
  for (const Json& entry : registry.List()) {
    if (entry["state"] == "served") tiers[entry["name"]] = entry["tier"];
  }
  return tiers;
}
using Expected = std::map<std::string, std::string>;

TEST(AdapterTiers, KeepAsManyAsThereAreSlotsAndHostAdapters) {
  AdapterRegistry registry(1, AdapterSwitch::kFinish, 2);
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(Load(registry, name, 1), 0U);
  EXPECT_EQ(Tiers(registry), (Expected{{"a", "host"}, {"b", "host"}, {"c", "slot"}}));
  Load(registry, "d", 1);
  EXPECT_EQ(Tiers(registry), (Expected{{"b", "host"}, {"c", "host"}, {"d", "slot"}}));
  EXPECT_THAT(ErrorOf([&] { registry.Expect("a"); }, ErrorCode::kNotFound), HasSubstr("evicted for 'd'"));
}

TEST(AdapterTiers, APromotionCostsNobodyItsPlace) {
  AdapterRegistry registry(1, AdapterSwitch::kFinish, 2);
  const std::vector<std::string> names = {"a", "b", "c"};
  for (const std::string& name : names) Load(registry, name, 1);
  for (int i = 0; i < 50; ++i) {
    const std::string& name = names[static_cast<std::size_t>(i) % names.size()];
    EXPECT_FALSE(registry.Admit(name, 1));  // in a host copy: its sequence has to wait
    const AdapterLease lease = Promote(registry, name);
    EXPECT_EQ(lease.slot(), 0);
    EXPECT_EQ(lease.version(), Step(1));
    EXPECT_TRUE(registry.Admit(name, 1));
    EXPECT_EQ(Tiers(registry).size(), 3U);
  }
}

TEST(AdapterTiers, ALoadOfANewVersionCostsNobodyItsPlace) {
  AdapterRegistry registry(1, AdapterSwitch::kFinish, 2);
  for (const char* name : {"a", "b", "c"}) Load(registry, name, 1);
  Load(registry, "c", 2);  // its old version leaves the only slot for it
  EXPECT_EQ(Tiers(registry), (Expected{{"a", "host"}, {"b", "host"}, {"c", "slot"}}));
  Load(registry, "a", 2);  // whose old version is in a host copy
  EXPECT_EQ(Tiers(registry), (Expected{{"a", "slot"}, {"b", "host"}, {"c", "host"}}));
  EXPECT_EQ(registry.VersionOf("a"), Step(2));
  EXPECT_EQ(registry.List().size(), 3U);
}

TEST(AdapterTiers, ALoadThatFailsCostsNobodyItsPlace) {
  AdapterRegistry registry(1, AdapterSwitch::kFinish, 2);
  for (const char* name : {"a", "b", "c"}) Load(registry, name, 1);
  static_cast<void>(Take(registry, "d", Now()));
  EXPECT_EQ(Tiers(registry), (Expected{{"a", "host"}, {"b", "host"}, {"c", "host"}}));
  EXPECT_TRUE(Promote(registry, "b"));
}

TEST(AdapterTiers, AMoveThatFailsLeavesEveryAdapterWhereItWas) {
  AdapterRegistry registry(1, AdapterSwitch::kFinish, 1);
  Load(registry, "a", 1);
  Load(registry, "b", 1);
  const Json before = registry.List();
  {
    const AdapterRegistry::Room out = registry.MakeRoom("a", For::kPromotion, Now());
    EXPECT_EQ(std::get<AdapterMove>(out).adapter().name, "b");
    EXPECT_FALSE(registry.Admit("b", 1));  // it is about to leave
  }
  EXPECT_EQ(registry.List(), before);
  EXPECT_TRUE(registry.Admit("b", 2));
  static_cast<void>(registry.MoveInto(Take(registry, "a", Now(), For::kPromotion), "a"));
  EXPECT_EQ(Tiers(registry), (Expected{{"a", "host"}, {"b", "host"}}));
  EXPECT_TRUE(Promote(registry, "b"));
  EXPECT_EQ(Tiers(registry), (Expected{{"a", "host"}, {"b", "slot"}}));
}

TEST(AdapterTiers, AnAdapterThatIsUnloadedOnItsWayIsGone) {
  AdapterRegistry registry(1, AdapterSwitch::kFinish, 1);
  Load(registry, "a", 1);
  Load(registry, "b", 1);
  std::optional<AdapterMove> move = registry.MoveInto(Take(registry, "a", Now(), For::kPromotion), "a");
  registry.Unload("a");
  ErrorOf([&] { (void)registry.Promoted(std::move(*move)); }, ErrorCode::kNotFound);
  EXPECT_EQ(Tiers(registry), (Expected{{"b", "host"}}));

  AdapterRegistry::Room out = registry.MakeRoom("c", For::kLoad, Now());
  AdapterFill slot = std::move(std::get<AdapterFill>(out));  // free since then
  registry.Name(std::move(slot), {.name = "c", .version = Step(1)}, false);
  AdapterRegistry::Room leaving = registry.MakeRoom("b", For::kPromotion, Now());
  registry.Unload("c");
  EXPECT_EQ(registry.Demoted(std::move(std::get<AdapterMove>(leaving)), "b", For::kPromotion).place(), 0U);
  EXPECT_EQ(Tiers(registry), (Expected{{"b", "host"}}));
}

TEST(AdapterTiers, AnAdapterThatGetsANewVersionOnItsWayIsThatVersion) {
  AdapterRegistry registry(2, AdapterSwitch::kFinish, 1);
  for (const char* name : {"a", "b", "c"}) Load(registry, name, 1);
  std::optional<AdapterMove> move = registry.MoveInto(Take(registry, "a", Now(), For::kPromotion), "a");
  registry.Unload("c");
  Load(registry, "a", 2);
  EXPECT_EQ(registry.Promoted(std::move(*move)).version(), Step(2));
  EXPECT_EQ(Tiers(registry), (Expected{{"a", "slot"}, {"b", "host"}}));
}

TEST(AdapterTiers, APinnedAdapterIsNeverDroppedAndKeepsItsSlot) {
  AdapterRegistry registry(2, AdapterSwitch::kFinish, 1);
  Load(registry, "host", 1);
  Load(registry, "x0", 1);
  Load(registry, "x1", 1);
  registry.Pin("host", true);
  EXPECT_EQ(Tiers(registry)["host"], "host");
  EXPECT_THAT(ErrorOf([&] { registry.Pin("x0", true); }, ErrorCode::kFailedPrecondition),
              AllOf(HasSubstr("1 of 2 slots"), HasSubstr("host copies")));
  for (std::uint64_t i = 2; i < 20; ++i) Load(registry, "x" + std::to_string(i), i);
  EXPECT_EQ(Tiers(registry), (Expected{{"host", "host"}, {"x18", "slot"}, {"x19", "slot"}}));
  Promote(registry, "host");
  for (std::uint64_t i = 0; i < 20; ++i) Load(registry, "y" + std::to_string(i), i);
  EXPECT_EQ(Tiers(registry), (Expected{{"host", "slot"}, {"y18", "host"}, {"y19", "slot"}}));
}

TEST(AdapterTiers, APromotionThatWaitsClosesOneSlotToThoseWhoComeLater) {
  AdapterRegistry registry(2, AdapterSwitch::kFinish, 1);
  for (const char* name : {"a", "b", "c"}) Load(registry, name, 1);  // a is in a host copy
  std::vector<AdapterLease> running;
  running.push_back(registry.Admit("b", 1));
  running.push_back(registry.Admit("c", 2));
  registry.Pin("c", true);
  auto promoted = std::async(std::launch::async, [&] { return Promote(registry, "a", Later()); });
  std::uint64_t sequence = 2;
  while (registry.Admit("b", ++sequence)) {
  }
  EXPECT_TRUE(registry.Admit("b", 1));  // it came before
  EXPECT_TRUE(registry.Admit("c", ++sequence));
  running.clear();
  EXPECT_EQ(promoted.get().name(), "a");
  EXPECT_EQ(Tiers(registry)["a"], "slot");
}

TEST(AdapterTiers, APromotionThatIsGivenUpOpensTheSlotAgain) {
  AdapterRegistry registry(1, AdapterSwitch::kFinish, 1);
  Load(registry, "a", 1);
  Load(registry, "b", 1);
  const AdapterLease running = registry.Admit("b", 1);
  std::stop_source given_up;
  auto promoted = std::async(std::launch::async, [&] {
    return ErrorOf([&] { (void)Promote(registry, "a", Later().OrStop(given_up.get_token())); },
                   ErrorCode::kResourceExhausted);
  });
  std::uint64_t sequence = 1;
  while (registry.Admit("b", ++sequence)) {
  }
  given_up.request_stop();
  EXPECT_THAT(promoted.get(), AllOf(HasSubstr("adapter 'a'"), HasSubstr("The 1 slots"), HasSubstr("'b' (in use)")));
  EXPECT_TRUE(registry.Admit("b", ++sequence));
}

TEST(AdapterTiers, AnAdapterStaysInItsSlotUntilThoseAreToldWhoWaitForIt) {
  AdapterRegistry registry(1, AdapterSwitch::kFinish, 2);
  for (const char* name : {"a", "b", "c"}) Load(registry, name, 1);
  std::optional<AdapterLease> awaited = Promote(registry, "a");
  EXPECT_THAT(ErrorOf([&] { (void)Take(registry, "b", Now(), For::kPromotion); }, ErrorCode::kResourceExhausted),
              HasSubstr("'a' (in use)"));
  const AdapterLease running = registry.Admit("a", 1);
  awaited.reset();
  ErrorOf([&] { (void)Take(registry, "d", Now()); }, ErrorCode::kResourceExhausted);
}

TEST(AdapterTiers, KeptSequencesFindTheNewVersionInASlot) {
  AdapterRegistry registry(2, AdapterSwitch::kKeep, 2);
  Load(registry, "other", 1);
  Load(registry, "a", 1);
  AdapterLease lease = registry.Admit("a", 1);
  Load(registry, "a", 2);  // the other one leaves
  ErrorOf([&] { (void)Take(registry, "other", Now(), For::kPromotion); }, ErrorCode::kResourceExhausted);
  const std::optional<AdapterLease> renewed = registry.Renewed(std::move(lease));
  EXPECT_EQ(renewed->version(), Step(2));
  EXPECT_TRUE(Promote(registry, "other"));
}

TEST(AdapterTiers, AnAdapterInAHostCopyStillSaysWhatBaseItIsOf) {
  AdapterRegistry registry(1, AdapterSwitch::kFinish, 1);
  registry.Name(Take(registry, "a", Now()), {.name = "a", .version = Step(1), .base = Step(7)}, false);
  Load(registry, "b", 1);
  EXPECT_EQ(Tiers(registry)["a"], "host");
  EXPECT_EQ(registry.NotOf(Step(8)), std::vector<std::string>{"a"});
  EXPECT_TRUE(registry.NotOf(Step(7)).empty());
}

TEST(AdapterTiers, HostCopiesOutliveTheMemoryOfSlots) {
  AdapterRegistry registry(2, AdapterSwitch::kFinish, 2);
  for (const char* name : {"a", "b", "c"}) Load(registry, name, 1);
  AdapterFill filling = Take(registry, "d", Now());
  registry.Forget("it was lost");
  EXPECT_EQ(Tiers(registry), (Expected{{"a", "host"}, {"b", "host"}}));
  // What was filled before the loss is not there any more.
  ErrorOf([&] { registry.Name(std::move(filling), {.name = "d", .version = Step(1)}, false); },
          ErrorCode::kUnavailable);
  EXPECT_TRUE(Promote(registry, "a"));
  EXPECT_TRUE(Promote(registry, "b"));
}

// Both tiers in few lines: names in the order of their last use, of whom some are in slots.
struct TwoTiers {
  std::size_t slots, hosts;
  std::list<std::string> order{};  // the least recently used first
  std::set<std::string> in_slot{}, pinned{};

  std::optional<std::string> Oldest(bool slot, const std::string& spared) const {
    for (const bool own : {false, true}) {
      for (const std::string& name : order) {
        if (in_slot.contains(name) == slot && !pinned.contains(name) && (name == spared) == own) return name;
      }
    }
    return std::nullopt;
  }
  void Drop(std::string name) {
    order.remove(name);
    in_slot.erase(name);
    pinned.erase(name);
  }
  void Use(const std::string& name) {
    if (!in_slot.contains(name) && in_slot.size() == slots) in_slot.erase(*Oldest(true, name));
    in_slot.insert(name);
    order.remove(name);
    order.push_back(name);
  }
  void Load(const std::string& name) {
    if (in_slot.size() == slots) in_slot.erase(*Oldest(true, name));
    in_slot.erase(name);
    Use(name);
    while (order.size() > slots + hosts) {
      const std::optional<std::string> oldest = Oldest(false, name);
      Drop(oldest ? *oldest : *Oldest(true, name));
    }
  }
};

TEST(AdapterTiers, AdaptersLeaveAndComeBackAsOfAListInOrderOfUse) {
  const std::vector<std::string> names = {"a", "b", "c", "d", "e", "f", "g"};
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    TwoTiers expected{.slots = 1 + seed % 3, .hosts = 1 + seed % 2};
    AdapterRegistry registry(expected.slots, AdapterSwitch::kFinish, expected.hosts);
    for (int i = 0; i < 300; ++i) {
      const std::string& name = names[random() % names.size()];
      const bool known = std::ranges::find(expected.order, name) != expected.order.end();
      switch (random() % 6) {
        case 0:
        case 1:
          Load(registry, name, static_cast<std::uint64_t>(i));
          expected.Load(name);
          break;
        case 2:
        case 3:
          if (!known) break;
          EXPECT_TRUE(Promote(registry, name));
          expected.Use(name);
          break;
        case 4:
          if (!known) break;
          registry.Unload(name);
          expected.Drop(name);
          break;
        default:
          if (!known || (!expected.pinned.contains(name) && expected.pinned.size() + 1 >= expected.slots)) break;
          registry.Pin(name, !expected.pinned.contains(name));
          if (expected.pinned.erase(name) == 0) expected.pinned.insert(name);
      }
      std::map<std::string, std::string> tiers;
      for (const std::string& each : expected.order) tiers[each] = expected.in_slot.contains(each) ? "slot" : "host";
      ASSERT_EQ(Tiers(registry), tiers) << "seed " << seed << ", step " << i;
    }
  }
}

}  // namespace
}  // namespace layercast

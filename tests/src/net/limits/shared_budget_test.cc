#include "src/net/limits/shared_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

namespace layercast::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Whoever is first in a test began first.
Holder HolderOf(std::uint64_t number, std::string who, std::uint64_t bytes) {
  const Deadline::Clock::time_point begun{std::chrono::seconds(number)};
  return {.number = number, .who = std::move(who), .bytes = bytes, .begun = begun};
}

TEST(SharedBudget, IsOneForAllSocketsOfAProcess) {
  SharedBudget budget;
  SharedBudget::Share one(budget, 100);
  SharedBudget::Share other(budget, 100);
  EXPECT_THAT(one.Report({HolderOf(1, "a", 60)}, 60).cut, IsEmpty());
  EXPECT_THAT(other.Report({HolderOf(2, "b", 50)}, 50).cut, IsEmpty()) << "it is a's that is too much";
  EXPECT_THAT(one.Report({HolderOf(1, "a", 60)}, 60).cut, ElementsAre(1));
  EXPECT_THAT(one.Report({}, 0).cut, IsEmpty());
  EXPECT_THAT(other.Report({HolderOf(2, "b", 90)}, 90).cut, IsEmpty());
}

TEST(SharedBudget, AddsUpWhatOneHasAtSeveralSockets) {
  SharedBudget budget;
  SharedBudget::Share one(budget, 100);
  SharedBudget::Share other(budget, 100);
  static_cast<void>(one.Report({HolderOf(1, "a", 40), HolderOf(2, "b", 50)}, 90));
  EXPECT_THAT(other.Report({HolderOf(3, "a", 40)}, 40).cut, IsEmpty());
  EXPECT_THAT(one.Report({HolderOf(1, "a", 40), HolderOf(2, "b", 50)}, 90).cut, ElementsAre(1)) << "the first of a's";
}

TEST(SharedBudget, IsTheLeastThatASocketWasGivenAndTightForAllOfThem) {
  SharedBudget budget;
  SharedBudget::Share unasked(budget, std::nullopt);
  EXPECT_EQ(unasked.Report({}, 0).most, SharedBudget::kUsual);
  SharedBudget::Share wide(budget, SharedBudget::kUsual * 4);
  EXPECT_EQ(unasked.Report({}, 0).most, SharedBudget::kUsual * 4);
  SharedBudget::Share narrow(budget, 100);
  EXPECT_FALSE(narrow.Report({}, 25).tight);
  EXPECT_TRUE(narrow.Report({}, 26).tight) << "of connections that have ended";
  const SharedBudget::Verdict verdict = wide.Report({}, 0);
  EXPECT_EQ(verdict.most, 100U);
  EXPECT_TRUE(verdict.tight);
}

TEST(SharedBudget, OfASocketThatIsGoneIsFree) {
  SharedBudget budget;
  std::optional<SharedBudget::Share> gone(std::in_place, budget, 100);
  SharedBudget::Share stays(budget, 100);
  static_cast<void>(gone->Report({HolderOf(1, "a", 80)}, 80));
  gone.reset();
  EXPECT_FALSE(stays.Report({}, 0).tight);
}

TEST(SharedBudget, OfAParentIsNotItsChilds) {
  SharedBudget budget;
  SharedBudget::Share share(budget, 100);
  static_cast<void>(share.Report({HolderOf(1, "a", 80)}, 80));
  const pid_t child = ::fork();
  if (child == 0) {
    SharedBudget::Share own(budget, 100);
    ::_exit(own.Report({}, 0).tight ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace layercast::testing

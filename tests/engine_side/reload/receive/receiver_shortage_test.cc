// A reload for which there is no memory, at whichever of its allocations: it is told as that, the old version is still
// there, and the next reload takes the new one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
#include <string>
#include <tuple>

#include "tests/support/reload/failing_new.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using testing::Differences;
using testing::EagerSource;
using testing::FailingNew;
using ::testing::IsEmpty;
using testing::ReceiverRig;
using testing::ServedBytes;
using testing::Weights;
using testing::WriteCheckpoint;

constexpr CommitPolicy kPolicies[] = {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace};

enum class From { kIterator, kPath };

// By policy; with or without the fused kernels; from where.
class ReceiverShortage : public ::testing::TestWithParam<std::tuple<CommitPolicy, bool, From>> {
 protected:
  ReceiverShortage() {
    WriteCheckpoint(old_files_, old_);
    WriteCheckpoint(new_files_, new_);
  }

  ReloadSource Source(bool is_new) const {
    if (std::get<From>(GetParam()) == From::kPath) return FromPath((is_new ? new_files_ : old_files_).path());
    return EagerSource(is_new ? new_ : old_);
  }

  // The error of a reload; none: it took the version.
  std::optional<Error> Reload(ReloadSource source) {
    try {
      rig_.receiver->ReloadWeights(std::move(source));
    } catch (const Error& error) {
      return error;
    }
    return std::nullopt;
  }

  void LoadOld() {
    ASSERT_FALSE(Reload(Source(false)));
    old_version_ = rig_.receiver->version();
  }

  void ExpectRanOut(const std::optional<Error>& error, std::size_t allocation) {
    ASSERT_TRUE(error) << "allocation " << allocation;
    EXPECT_EQ(error->code(), ErrorCode::kResourceExhausted) << "allocation " << allocation << ": " << error->what();
  }

  // Whether what is served is the version that the receiver says, or it says that there is none.
  bool IsAsItSays() const {
    if (rig_.receiver->torn()) return true;
    const bool is_old = rig_.receiver->version() == old_version_;
    return Differences(rig_.engine.Served(), is_old ? expected_old_ : expected_new_).empty();
  }

  bool MayBeTorn() const { return std::get<CommitPolicy>(GetParam()) == CommitPolicy::kInPlace; }

  ReceiverRig rig_{
      {.recipe = "fp8_per_block"}, std::get<bool>(GetParam()), /*caching=*/false, std::get<CommitPolicy>(GetParam())};
  const Weights old_ = rig_.Version(1);
  const Weights new_ = rig_.Version(2);
  const TempFolder old_files_;
  const TempFolder new_files_;
  const ServedBytes expected_old_ = rig_.Expected(old_);
  const ServedBytes expected_new_ = rig_.Expected(new_);
  std::optional<Version> old_version_;  // once it was loaded
};

TEST_P(ReceiverShortage, OfWhatItAsksAMemoryResourceFor) {
  for (const bool as_cpp_does : {false, true}) {
    LoadOld();
    for (std::size_t n = 0;; ++n) {
      rig_.failing.FailAfter(n, as_cpp_does);
      const std::optional<Error> error = Reload(Source(true));
      if (!rig_.failing.Stop()) break;
      ExpectRanOut(error, n);
      EXPECT_TRUE(rig_.receiver->torn() || rig_.receiver->version() == old_version_) << n;
      EXPECT_TRUE(IsAsItSays()) << n;
      EXPECT_TRUE(MayBeTorn() || !rig_.receiver->torn()) << n;
    }
    EXPECT_THAT(Differences(rig_.engine.Served(), expected_new_), IsEmpty());
  }
}

// The first reload also makes what is kept for all later ones.
TEST_P(ReceiverShortage, OfWhatTheFirstReloadAsksFor) {
  std::size_t failures = 0;
  while (true) {
    rig_.failing.FailAfter(failures);
    const std::optional<Error> error = Reload(Source(true));
    if (!rig_.failing.Stop()) break;
    ExpectRanOut(error, failures++);
  }
  EXPECT_GT(failures, 0U);
  EXPECT_THAT(Differences(rig_.engine.Served(), expected_new_), IsEmpty());
}

// Of files, the standard library's own functions that may not throw allocate memory too.
using ReceiverShortageInCpp = ReceiverShortage;

// Every string, vector and map of the calling thread. Some of them may be done without.
TEST_P(ReceiverShortageInCpp, OfWhatCppAllocates) {
  LoadOld();
  std::size_t failures = 0;
  for (std::size_t n = 0;; ++n) {
    ReloadSource source = Source(true);
    std::optional<Error> error;
    bool failed = false;
    {
      FailingNew failing(n);
      error = Reload(std::move(source));
      failed = failing.failed();
    }
    if (!failed) break;
    if (error) {
      ++failures;
      ExpectRanOut(error, n);
    }
    ASSERT_TRUE(IsAsItSays()) << n;
    // A staged copy that lies over the old bytes by now is copied there again by the next reload's commit.
    EXPECT_TRUE(std::get<CommitPolicy>(GetParam()) != CommitPolicy::kUndo || !rig_.receiver->torn()) << n;
    if (rig_.receiver->torn() || rig_.receiver->version() != old_version_) LoadOld();
  }
  EXPECT_GT(failures, 100U);
  EXPECT_THAT(Differences(rig_.engine.Served(), expected_new_), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Policies, ReceiverShortage,
                         ::testing::Combine(::testing::ValuesIn(kPolicies), ::testing::Bool(),
                                            ::testing::Values(From::kIterator, From::kPath)));

INSTANTIATE_TEST_SUITE_P(Policies, ReceiverShortageInCpp,
                         ::testing::Combine(::testing::ValuesIn(kPolicies), ::testing::Bool(),
                                            ::testing::Values(From::kIterator)));

}  // namespace
}  // namespace layercast

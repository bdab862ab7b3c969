// What a publisher has computed of its versions is computed once, and forgotten with them.
#include "src/session/offer/known_of_versions.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/support/session/publishing.h"

namespace layercast::testing {
namespace {

class KnownOfVersionsTest : public ::testing::Test {
 protected:
  std::shared_ptr<OfferedVersion> Version(std::uint64_t id) const {
    Offer offer{.id = id, .tensors = {}};
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      offer.tensors.push_back({weights_.bytes(i).data(), weights_.bytes(i).size()});
    }
    return std::make_shared<OfferedVersion>(weights_.ToManifest(), std::move(offer), false);
  }
  std::vector<float> Amax(KnownOfVersions& known, const std::shared_ptr<OfferedVersion>& version) {
    return known.Amax(version, {.tensor = 1, .kept = kKeptRows}, pool_, nullptr);
  }

  const Weights weights_ = SomeWeights();
  WorkerPool pool_{2};
};

TEST_F(KnownOfVersionsTest, VersionsThatAreGoneAreForgotten) {
  KnownOfVersions known;
  for (std::uint64_t id = 1; id <= 50; ++id) {
    const auto version = Version(id);
    Amax(known, version);
    known.Digests(version, Digest{}).resize(3);
    EXPECT_EQ(known.versions(), 1) << "after " << id;
  }
}

TEST_F(KnownOfVersionsTest, WhatWasComputedOnceIsThereTheNextTime) {
  KnownOfVersions known;
  const auto first = Version(1);
  const auto second = Version(2);
  known.Digests(first, Digest{}).resize(3);
  const std::vector<float> amax = Amax(known, first);
  const std::size_t values = known.values();
  EXPECT_EQ(values, amax.size() + KnownOfVersions::kValuesOfARequest);
  EXPECT_EQ(Amax(known, first), amax);
  EXPECT_EQ(known.values(), values);
  EXPECT_TRUE(known.Digests(second, Digest{}).empty());
  EXPECT_EQ(known.Digests(first, Digest{}).size(), 3);
}

TEST_F(KnownOfVersionsTest, MagnitudesOfTheOldestGoWhereThereIsNoRoom) {
  const auto first = Version(1);
  const auto second = Version(2);
  KnownOfVersions probe;
  const std::vector<float> amax = Amax(probe, first);
  KnownOfVersions known(probe.values());
  Amax(known, first);
  EXPECT_EQ(Amax(known, second), amax);  // of equal bytes
  EXPECT_EQ(known.values(), probe.values());
  KnownOfVersions none(1);
  EXPECT_EQ(Amax(none, first), amax);
  EXPECT_EQ(none.values(), 0);
}

}  // namespace
}  // namespace layercast::testing

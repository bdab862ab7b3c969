#include "src/session/fetch/version_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace layercast::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> kEndpoints = {"tcp://a", "tcp://b", "tcp://c"};

const std::string kNoRun;

Manifest PartOfStep(std::uint64_t step, VersionPart part) { return {"run", step, {}, part}; }

TEST(ByRank, SortsPublishersAndNamesThoseThatAreNoneOfAVersion) {
  const std::vector<Manifest> three = {PartOfStep(3, {0, 3}), PartOfStep(3, {1, 3}), PartOfStep(3, {2, 3})};
  const auto order = [](std::initializer_list<const Manifest*> manifests) {
    std::vector<PublishedPart> parts;
    for (const Manifest* manifest : manifests) parts.push_back({kEndpoints[parts.size()], *manifest, kNoRun});
    return ByRank(parts);
  };
  const Manifest whole = PartOfStep(3, {});
  const Manifest later = PartOfStep(4, {1, 3});
  EXPECT_THAT(order({&three[2], &three[0], &three[1]}), ElementsAre(1, 2, 0));
  EXPECT_THAT(order({&whole}), ElementsAre(0));
  EXPECT_EQ(ErrorOf([&] { order({&three[2]}); }),
            "publisher tcp://a has part 2 of 3 of run@3: expected publishers of all of them, got 1 without ranks 0, 1");
  EXPECT_EQ(ErrorOf([&] { order({&three[0], &three[1], &three[0]}); }),
            "publisher tcp://a has part 0 of 3 of run@3, and so has publisher tcp://c: expected each part once");
  EXPECT_EQ(ErrorOf([&] { order({&three[0], &later, &three[2]}); }),
            "publisher tcp://a has part 0 of 3 of run@3, and publisher tcp://b has part 1 of 3 of run@4: expected "
            "parts of one version");
  EXPECT_THAT(ErrorOf([&] { order({&whole, &three[1]}); }), HasSubstr("part 0 of 1 of run@3, and publisher tcp://b"));
  EXPECT_THAT(ErrorOf([&] { order({&whole, &whole}); }), HasSubstr("and so has publisher tcp://b"));
}

TEST(ByRank, TakesPartsOfOneRunAloneOrThoseOfWhichNoneIsKnown) {
  const Manifest parts[] = {PartOfStep(3, {0, 2}), PartOfStep(3, {1, 2})};
  const auto order = [&](const std::string& first, const std::string& second) {
    return ByRank(std::vector<PublishedPart>{{kEndpoints[0], parts[0], first}, {kEndpoints[1], parts[1], second}});
  };
  EXPECT_THAT(order("job-7", "job-7"), ElementsAre(0, 1));
  EXPECT_THAT(order("", ""), ElementsAre(0, 1));
  EXPECT_EQ(ErrorOf([&] { order("job-7", "job-8"); }, ErrorCode::kFailedPrecondition),
            "publisher tcp://a has part 0 of 2 of run@3 of run 'job-7', and publisher tcp://b has part 1 of 2 of run@3 "
            "of run 'job-8': expected parts that one run of a trainer has published");
  EXPECT_EQ(ErrorOf([&] { order("", "job-8"); }, ErrorCode::kFailedPrecondition),
            "publisher tcp://a has part 0 of 2 of run@3 of a run without a name, and publisher tcp://b has part 1 of 2 "
            "of run@3 of run 'job-8': expected parts that one run of a trainer has published");
}

}  // namespace
}  // namespace layercast::testing

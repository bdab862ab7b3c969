#include "src/base/digest/digest_all.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace layercast {
namespace {

TEST(DigestAll, GivesEachBlockItsOwnDigestWhateverTheOthersAre) {
  std::vector<std::vector<std::byte>> blocks;
  for (const std::size_t size : {0, 1, 8191, 8192, 8193, 262'143, 262'144, 262'145, 1'000'000, 100, 0}) {
    std::vector<std::byte>& block = blocks.emplace_back(size);
    for (std::size_t i = 0; i < size; ++i) block[i] = static_cast<std::byte>(i * 31 + i / 251 + size);
  }
  const std::vector<std::span<const std::byte>> spans(blocks.begin(), blocks.end());
  for (const std::size_t threads : {1U, 2U, 3U}) {
    WorkerPool pool(threads);
    std::vector<Digest> digests(blocks.size());
    DigestAll(spans, digests, pool);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_EQ(digests[i], DigestOf(blocks[i])) << blocks[i].size();
      const auto digest_leaves = [&](std::size_t first, std::span<Digest> leaves) {
        const auto rest = spans[i].subspan(first * kLeafBytes);
        DigestLeaves(rest.first(std::min(rest.size(), leaves.size() * kLeafBytes)), leaves);
      };
      EXPECT_EQ(DigestInShares(blocks[i].size(), digest_leaves, pool), DigestOf(blocks[i])) << blocks[i].size();
    }
  }
}

TEST(DigestAll, OfNothingIsNothing) {
  WorkerPool pool(2);
  EXPECT_NO_THROW(DigestAll({}, {}, pool));
}

}  // namespace
}  // namespace layercast

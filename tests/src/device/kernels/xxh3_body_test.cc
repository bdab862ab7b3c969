// What the kernel for leaf digests does, run on the host: four threads of a leaf one after the other, their folds added
// up as a device's lanes do.
#include "src/device/kernels/xxh3_body.cuh"

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "tests/src/device/kernels/leaf_reference.h"

namespace layercast {
namespace {

// What the kernel writes is read as these.
static_assert(std::is_standard_layout_v<Digest> && sizeof(Digest) == sizeof(xxh3::LeafDigest));
static_assert(offsetof(Digest, high) == offsetof(xxh3::LeafDigest, high));
static_assert(offsetof(Digest, low) == offsetof(xxh3::LeafDigest, low));

struct OnHost {
  // With teams past the last leaf, as a device's last block has.
  template <class Body>
  void Run(const xxh3::LeafArguments& arguments, std::uint64_t leaves) const {
    for (std::uint64_t leaf = 0; leaf < leaves + 3; ++leaf) {
      xxh3::Uint128 folds;
      for (unsigned thread = 0; thread < xxh3::kTeam; ++thread) {
        const xxh3::Uint128 fold = Body(arguments, leaf, thread).Fold();
        folds = {folds.low + fold.low, folds.high + fold.high};
      }
      for (unsigned thread = 0; thread < xxh3::kTeam; ++thread) Body(arguments, leaf, thread).Finish(folds);
    }
  }
};

std::vector<Digest> ByBodies(std::span<const std::byte> bytes) {
  std::vector<Digest> digests(NumLeaves(bytes.size()));
  xxh3::RunLeafDigests(OnHost(), {reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                                  reinterpret_cast<xxh3::LeafDigest*>(digests.data())});
  return digests;
}

enum class Pattern { kRandom, kZeros, kOnes, kIndex };
constexpr Pattern kPatterns[] = {Pattern::kRandom, Pattern::kZeros, Pattern::kOnes, Pattern::kIndex};

// Bytes in a block of exactly their size, so that a sanitizer sees a read outside of them; they start `shift` past an
// address that is aligned to 16.
class Bytes {
 public:
  Bytes(std::size_t count, std::size_t shift, Pattern pattern)
      : block_(new std::byte[shift + count]), bytes_(block_.get() + shift, count) {
    std::minstd_rand random(static_cast<unsigned>(count + shift));
    for (std::size_t i = 0; i < count; ++i) bytes_[i] = At(i, pattern, random);
  }

  std::span<const std::byte> span() const { return bytes_; }

 private:
  static std::byte At(std::size_t index, Pattern pattern, std::minstd_rand& random) {
    switch (pattern) {
      case Pattern::kRandom: return static_cast<std::byte>(random() >> 8);
      case Pattern::kZeros: return std::byte{0};
      case Pattern::kOnes: return std::byte{0xff};
      case Pattern::kIndex: return static_cast<std::byte>(index);
    }
    return {};
  }

  std::unique_ptr<std::byte[]> block_;
  std::span<std::byte> bytes_;
};

void ExpectXxHashs(std::size_t count, std::size_t shift, Pattern pattern) {
  const Bytes bytes(count, shift, pattern);
  ASSERT_EQ(reinterpret_cast<std::uintptr_t>(bytes.span().data()) % 16, shift % 16);
  ASSERT_EQ(ByBodies(bytes.span()), ByXxHash(bytes.span()))
      << count << " bytes, " << shift << " past an aligned address, pattern " << static_cast<int>(pattern);
}

// At 0, 4 and 1: by loads of 16 bytes, of 4, and of one.
void ExpectXxHashsAtEveryLength(std::size_t first, std::size_t last) {
  for (std::size_t count = first; count <= last; ++count) {
    for (const std::size_t shift : {0U, 4U, 1U}) {
      for (const Pattern pattern : kPatterns) ExpectXxHashs(count, shift, pattern);
    }
  }
}

TEST(Xxh3Body, EqualsXxHashAtEveryLengthOfItsShortFormsAndFirstBlocks) { ExpectXxHashsAtEveryLength(0, 1100); }

TEST(Xxh3Body, EqualsXxHashAtEveryLengthUpToAWholeLeaf) { ExpectXxHashsAtEveryLength(8100, 8192); }

TEST(Xxh3Body, EqualsXxHashAroundEveryBlock) {
  for (std::size_t block = 1; block < 8; ++block) {
    ExpectXxHashsAtEveryLength(block * xxh3::kBlock - 2, block * xxh3::kBlock + 2);
  }
}

TEST(Xxh3Body, EqualsXxHashAtEveryAlignment) {
  for (std::size_t shift = 0; shift < 16; ++shift) {
    for (const std::size_t count : {0, 3, 8, 16, 17, 128, 129, 240, 241, 1024, 8191, 8192, 8193, 20'000}) {
      ExpectXxHashs(count, shift, Pattern::kRandom);
    }
  }
}

TEST(Xxh3Body, EqualsXxHashOnLeavesWithTailsOfAnyLength) {
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) ExpectXxHashs(kLeafBytes + random() % 40'000, random() % 16, Pattern::kRandom);
}

TEST(Xxh3Body, EqualsXxHashOnRandomLengthsOfALeaf) {
  std::mt19937 random(2);
  for (int i = 0; i < 1000; ++i) ExpectXxHashs(random() % (kLeafBytes + 1), random() % 16, Pattern::kRandom);
}

TEST(NumLeaves, CutsAtEvery8192BytesAndNoBytesAreOneLeaf) {
  EXPECT_EQ(NumLeaves(0), 1U);
  EXPECT_EQ(NumLeaves(1), 1U);
  EXPECT_EQ(NumLeaves(8192), 1U);
  EXPECT_EQ(NumLeaves(8193), 2U);
  EXPECT_EQ(NumLeaves(std::numeric_limits<std::uint64_t>::max()), std::uint64_t{1} << 51);
}

}  // namespace
}  // namespace layercast

#include "engine_side/reload/commit/commit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine_side/reload/layout/strided.h"
#include "tests/support/reload/rig.h"

namespace layercast {
namespace {

using testing::Rig;

std::vector<std::byte> RandomBytes(std::size_t size) {
  std::vector<std::byte> bytes(size);
  std::uint32_t next = 1;
  for (std::byte& byte : bytes) byte = static_cast<std::byte>((next = next * 48271U) >> 16);
  return bytes;
}

TEST(Commit, WritesABufferAndNothingAroundIt) {
  Rig rig({.recipe = "fp8_per_block"});
  for (const CapturedBuffer& buffer : rig.engine.table()) {
    const auto bytes = RandomBytes(static_cast<std::size_t>(NumBytes(buffer.dtype, buffer.shape)));
    WriteCaptured(*rig.place, KernelTensor{.spec = {}, .destination = buffer, .padding = {}}, bytes);
    EXPECT_EQ(rig.captured.Read(buffer), bytes) << buffer.name;
  }
  EXPECT_TRUE(rig.engine.CanariesAreAlive());
}

TEST(Commit, FollowsForeignStrides) {
  Rig rig;
  // Every matrix column-major, every vector in every third element: as other engines hold them.
  for (CapturedBuffer buffer : rig.engine.table()) {
    buffer.strides =
        buffer.shape.size() == 2 ? std::vector<std::int64_t>{1, buffer.shape[0] + 3} : std::vector<std::int64_t>{3};
    std::vector<std::byte> memory(ExtentBytes(buffer), std::byte{0x5C});
    buffer.address = memory.data();
    const auto bytes = RandomBytes(static_cast<std::size_t>(NumBytes(buffer.dtype, buffer.shape)));
    WriteCaptured(*rig.place, KernelTensor{.spec = {}, .destination = buffer, .padding = {}}, bytes);
    std::vector<std::byte> read(bytes.size());
    ReadCaptured(buffer, read);
    EXPECT_EQ(read, bytes) << buffer.name;
    std::ranges::fill(read, std::byte{0});
    rig.place->Save(buffer, read);
    EXPECT_EQ(read, bytes) << buffer.name;
    EXPECT_GE(static_cast<std::size_t>(std::ranges::count(memory, std::byte{0x5C})), memory.size() - bytes.size());
    for (std::int64_t row = buffer.shape[0]; buffer.shape.size() == 2 && row < buffer.strides[1]; ++row) {
      const std::byte* gap = memory.data() + row * BitsPerElement(buffer.dtype) / 8;
      EXPECT_EQ(*gap, std::byte{0x5C}) << "below the first column of " << buffer.name;
    }
  }
}

// Host memory by itself.
struct HostRig {
  WorkerPool pool{1};
  HostMemory memory;
  std::unique_ptr<Place> place = MakeHostPlace(pool, memory, memory);
};

// Every byte is written once, whole where a buffer has gaps or padding, and small tensors share a share.
TEST(Commit, SharesAreAllBytesOfAllTensors) {
  constexpr std::int64_t kMany = (5 << 20) + 7;
  std::byte memory{};
  const auto tensor = [&](Shape shape, std::vector<std::int64_t> strides = {}) {
    KernelTensor made{.spec = {"t", DType::kF8E4M3, shape}, .destination = {}, .padding = {}};
    made.destination = {"t", &memory, DType::kF8E4M3, std::move(shape), std::move(strides), {}};
    made.num_bytes = static_cast<std::size_t>(made.spec.num_bytes());
    return made;
  };
  std::vector<KernelTensor> tensors = {tensor({100}),   tensor({0}), tensor({kMany}), tensor({3000, 1000}, {1024, 1}),
                                       tensor({kMany}), tensor({5})};
  tensors[4].padding.push_back(tensor({1}).destination);
  std::vector<std::size_t> written(tensors.size(), 0);
  const std::vector<CommitShare> shares = SharesOf(*HostRig().place, tensors);
  for (const CommitShare& share : shares) {
    for (std::size_t i = share.first; i <= share.last; ++i) {
      EXPECT_EQ(i == share.first ? share.begin : 0, written[i]) << "tensor " << i;
      written[i] = i == share.last ? share.end : tensors[i].num_bytes;
      EXPECT_TRUE(i == 2 || written[i] == tensors[i].num_bytes) << "tensor " << i << " was cut";
    }
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) EXPECT_EQ(written[i], tensors[i].num_bytes) << "tensor " << i;
  EXPECT_EQ(shares.size(), 8U);
  EXPECT_EQ(shares[0].last, 2U) << "small tensors and the beginning of the next";
}

TEST(Commit, WritesSavesAndRestoresPiecesOfABufferThatMayBeCut) {
  const auto bytes = RandomBytes(300'000);
  std::vector<std::byte> memory(bytes.size());
  KernelTensor tensor{.spec = {}, .destination = {}, .padding = {}, .num_bytes = bytes.size()};
  tensor.destination = {"t", memory.data(), DType::kF8E4M3, {300'000}, {}, {}};
  const std::span<const std::byte> all(bytes);
  HostRig rig;
  const TensorPiece pieces[] = {{tensor, 0, 200'001}, {tensor, 200'001, bytes.size()}};
  for (const TensorPiece& piece : pieces) WritePiece(*rig.place, piece, all);
  EXPECT_EQ(memory, bytes);
  std::vector<std::byte> log(bytes.size());
  for (const TensorPiece& piece : pieces) SavePiece(*rig.place, piece, log);
  EXPECT_EQ(log, bytes);
  std::ranges::fill(memory, std::byte{0});
  for (const TensorPiece& piece : pieces) RestorePiece(*rig.place, piece, log);
  EXPECT_EQ(memory, bytes);
}

TEST(Strided, VisitsRunsInRowMajorOrder) {
  std::vector<std::byte> memory(200);
  const auto runs = [&](Shape shape, std::vector<std::int64_t> strides) {
    std::string out;
    ForEachRun({"b", memory.data(), DType::kBF16, std::move(shape), std::move(strides), {}},
               [&](std::byte* address, std::size_t offset, std::size_t bytes) {
                 out += std::to_string(address - memory.data()) + ":" + std::to_string(offset) + "+" +
                        std::to_string(bytes) + " ";
               });
    return out;
  };
  EXPECT_EQ(runs({2, 3}, {}), "0:0+12 ");
  EXPECT_EQ(runs({2, 3}, {3, 1}), "0:0+12 ");
  EXPECT_EQ(runs({2, 3}, {8, 1}), "0:0+6 16:6+6 ");
  EXPECT_EQ(runs({2, 2}, {1, 4}), "0:0+2 8:2+2 2:4+2 10:6+2 ");
  EXPECT_EQ(runs({2, 1, 3}, {8, 99, 1}), "0:0+6 16:6+6 ") << "the stride of a dimension of one says nothing";
  EXPECT_EQ(runs({}, {}), "0:0+2 ");
  EXPECT_EQ(runs({0, 3}, {3, 1}), "");
  EXPECT_EQ(runs({2, 1, 2, 1, 2, 1, 2, 1, 2}, {48, 0, 23, 0, 11, 0, 5, 0, 2}),
            runs({2, 2, 2, 2, 2}, {48, 23, 11, 5, 2}));
  EXPECT_EQ(runs({1, 2, 1, 2, 1, 1}, {48, 23, 11, 5, 2, 9}), "0:0+2 10:2+2 46:4+2 56:6+2 ");
  EXPECT_EQ(runs({2, 1, 2, 2, 2, 2}, {60, 0, 30, 14, 6, 1}).substr(0, 54),
            "0:0+4 12:4+4 28:8+4 40:12+4 60:16+4 72:20+4 88:24+4 10")
      << "more dimensions than a walk has";
}

}  // namespace
}  // namespace layercast

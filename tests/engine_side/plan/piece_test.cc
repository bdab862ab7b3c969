#include "engine_side/plan/piece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "layercast/error.h"
#include "src/tensor/strided_copy.h"
#include "tests/engine_side/plan/planned_model.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;
using testing::TinyModel;
using testing::TinyOptions;
using testing::TinyWeights;
using testing::Tree;
using testing::Weights;

// One parameter of any shape, filled by one tensor through the boxes that the test wants.
class BoxedLayer final : public Module {
 public:
  BoxedLayer(Shape local, Box source, bool quantize) : Module("BoxedLayer"), source_(source) {
    AddParameter({{"weight", DType::kBF16, std::move(local)}, ShardAxis::kRows, quantize, {}});
  }
  std::vector<PlacedPiece> Place(std::string_view, std::string_view, const TensorSpec&) const override {
    return {{0, source_, Box::Whole(parameters()[0].spec.shape), {}}};
  }

 private:
  Box source_;
};

struct Made {
  Manifest manifest;
  LoadPlan plan;
  PlannedSchedule made;
};

Made Make(const Shape& whole, const Box& source, const ScheduleOptions& options, bool quantize = true) {
  Tree root;
  const Shape local(source.extent.begin(), source.extent.begin() + source.rank);
  root.Add("layer", std::make_unique<BoxedLayer>(local, source, quantize));
  Made out;
  out.manifest = Manifest("test", 0, {{{"layer.weight", DType::kBF16, whole}, {}, -1.0F}});
  out.plan = LoadPlan::Build(root, out.manifest);
  out.made = MakeSchedule(out.plan, out.manifest, options);
  return out;
}

// What a receiver would do, the slow way: every region's bytes, one after the other, are the pieces' packed bytes.
void ExpectPiecesCarryThePlacement(const Made& m, const ScheduleOptions& options) {
  const TensorSpec& spec = m.manifest.entry(0).spec;
  std::vector<std::uint16_t> tensor(static_cast<std::size_t>(spec.num_elements()));
  for (std::size_t i = 0; i < tensor.size(); ++i) tensor[i] = static_cast<std::uint16_t>(i);
  const auto* data = reinterpret_cast<const std::byte*>(tensor.data());

  const Placement& placement = m.plan.placements().at(0);
  const TensorSpec packed_spec{"", spec.dtype, {placement.source.num_elements()}};
  std::vector<std::byte> packed(static_cast<std::size_t>(packed_spec.num_bytes()));
  CopyBox({spec.dtype, spec.shape, data, {}}, placement.source, packed_spec, Box::Whole(packed_spec.shape),
          packed.data());

  std::uint64_t next = 0;
  ASSERT_EQ(m.made.pieces.size(), m.made.schedule.regions().size());
  for (std::size_t i = 0; i < m.made.pieces.size(); ++i) {
    const Piece& piece = m.made.pieces[i];
    const Region& region = m.made.schedule.regions()[i];
    ASSERT_EQ(region, RegionOf(m.plan, m.manifest, piece));
    ASSERT_EQ(piece.begin, next);
    ASSERT_EQ(region.num_bytes(), piece.end - piece.begin);
    CheckInside(region, static_cast<std::uint64_t>(spec.num_bytes()));
    std::vector<std::byte> bytes(region.num_bytes());
    Pack({data + region.offset, region.row_bytes, region.rows, region.stride}, bytes.data());
    ASSERT_EQ(std::memcmp(bytes.data(), packed.data() + piece.begin, bytes.size()), 0);
    next = piece.end;
  }
  EXPECT_EQ(next, packed.size());
  for (const Chunk& chunk : m.made.schedule.chunks()) EXPECT_LE(chunk.num_bytes, options.chunk_bytes);
}

TEST(MakeSchedule, CarriesEveryKeptByteOnceWhateverTheBoxAndTheChunkSize) {
  std::mt19937 random(7);
  const auto below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(bound));
  };
  for (int trial = 0; trial < 400; ++trial) {
    Shape whole;
    Box source;
    source.rank = static_cast<std::uint8_t>(below(5));
    for (std::size_t axis = 0; axis < source.rank; ++axis) {
      whole.push_back(1 + below(9));
      const bool all = below(2) == 0;
      source.begin[axis] = all ? 0 : below(whole[axis]);
      source.extent[axis] = all ? whole[axis] : 1 + below(whole[axis] - source.begin[axis]);
    }
    const ScheduleOptions options{
        .chunk_bytes = 16U + random() % 200, .row_multiple = 1U + random() % 6, .one_tensor_per_chunk = false};
    ExpectPiecesCarryThePlacement(Make(whole, source, options), options);
    if (HasFatalFailure()) FAIL() << "trial " << trial;
  }
}

TEST(MakeSchedule, CutsRowsAtTheMultipleThatARecipeAsksFor) {
  const ScheduleOptions options{.chunk_bytes = 300 * 8, .row_multiple = 128, .one_tensor_per_chunk = false};
  const Made m = Make({600, 4}, Box::Whole({600, 4}), options);
  std::vector<std::uint64_t> rows;
  for (const Piece& piece : m.made.pieces) rows.push_back(piece.end / 8);
  EXPECT_THAT(rows, ::testing::ElementsAre(256, 512, 600));
  const Made plain = Make({600, 4}, Box::Whole({600, 4}), options, false);
  EXPECT_EQ(plain.made.pieces.size(), 2U);
}

TEST(MakeSchedule, NeverStraddlesAMultipleThatDoesNotFitAChunk) {
  const ScheduleOptions options{.chunk_bytes = 100 * 8, .row_multiple = 128, .one_tensor_per_chunk = false};
  const Made m = Make({300, 4}, Box::Whole({300, 4}), options);
  std::vector<std::uint64_t> rows;
  for (const Piece& piece : m.made.pieces) rows.push_back(piece.end / 8);
  EXPECT_THAT(rows, ::testing::ElementsAre(100, 128, 228, 256, 300));
}

TEST(MakeSchedule, TakesColumnsAsStridedRows) {
  const ScheduleOptions options{.chunk_bytes = 4096, .row_multiple = 1, .one_tensor_per_chunk = false};
  const Made m = Make({8, 10}, Box::Slice({8, 10}, 1, 5, 5), options);
  ASSERT_EQ(m.made.schedule.regions().size(), 1U);
  EXPECT_EQ(m.made.schedule.regions()[0], (Region{0, 10, 10, 8, 20}));
}

TEST(MakeSchedule, GathersSmallTensorsUnlessAStreamForbidsIt) {
  const TinyOptions options{.tp_rank = 1, .tp_size = 2};
  const Manifest manifest = TinyWeights(options).ToManifest();
  const auto model = TinyModel(options);
  const LoadPlan plan = LoadPlan::Build(*model, manifest);
  const PlannedSchedule gathered = MakeSchedule(plan, manifest, {});
  EXPECT_EQ(gathered.schedule.chunks().size(), 1U);
  EXPECT_EQ(gathered.schedule.total_bytes(), plan.placed_bytes());
  const PlannedSchedule apart = MakeSchedule(plan, manifest, {.one_tensor_per_chunk = true});
  EXPECT_EQ(apart.schedule.total_bytes(), plan.placed_bytes());
  for (const Chunk& chunk : apart.schedule.chunks()) {
    for (const Region& region : apart.schedule.RegionsOf(chunk)) {
      EXPECT_EQ(region.tensor, apart.schedule.RegionsOf(chunk).front().tensor);
    }
  }
}

// Every byte of every tensor of a model, on all ranks: as often as the model holds it.
TEST(MakeSchedule, CoversAWholeModel) {
  for (const int tp : {1, 2, 4}) {
    const Weights weights = TinyWeights({.tp_size = tp});
    std::vector<std::vector<int>> counts(weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) counts[i].resize(weights.bytes(i).size());
    for (int rank = 0; rank < tp; ++rank) {
      const auto model = TinyModel({.tp_rank = rank, .tp_size = tp});
      const Manifest manifest = weights.ToManifest();
      const LoadPlan plan = LoadPlan::Build(*model, manifest);
      const PlannedSchedule made = MakeSchedule(plan, manifest, {.chunk_bytes = 100});
      for (const Region& r : made.schedule.regions()) {
        for (std::uint64_t row = 0; row < r.rows; ++row) {
          for (std::uint64_t i = 0; i < r.row_bytes; ++i) ++counts[r.tensor].at(r.offset + row * r.stride + i);
        }
      }
    }
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const std::string& name = weights.spec(i).name;
      const bool kv = name.find("k_proj") != std::string::npos || name.find("v_proj") != std::string::npos;
      const bool norm = name.find("norm") != std::string::npos;
      const int expected = norm ? tp : kv && tp == 4 ? 2 : 1;
      EXPECT_THAT(counts[i], ::testing::Each(expected)) << name << " tp " << tp;
    }
  }
}

TEST(MakeSchedule, RefusesChunksThatHoldNoElement) {
  EXPECT_THROW(Make({4}, Box::Whole({4}), {.chunk_bytes = 15}), Error);
}

}  // namespace
}  // namespace layercast

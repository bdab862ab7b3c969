// What CUDA kernels do, run on the host (host_runner.h): each recipe against the slow reference, byte for byte, and the
// faults that kernels report.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <set>
#include <typeindex>

#include "engine_side/quant/codes.h"
#include "engine_side/quant/cuda/bodies/block_body.cuh"
#include "engine_side/quant/cuda/bodies/copy_body.cuh"
#include "engine_side/quant/cuda/bodies/one_scale_body.cuh"
#include "engine_side/quant/cuda/bodies/row_body.cuh"
#include "engine_side/quant/cuda/bodies/small_block_body.cuh"
#include "engine_side/quant/recipes/recipe_table.h"
#include "src/device/kernels/amax_body.cuh"
#include "tests/engine_side/quant/cuda/bodies/cuda_cases.h"
#include "tests/engine_side/quant/cuda/bodies/host_runner.h"

namespace layercast {
namespace {

static_assert(cuda::kDTypeF16 == DType::kF16 && cuda::kDTypeBF16 == DType::kBF16);
static_assert(cuda::kDTypeF32 == DType::kF32 && cuda::kDTypeF64 == DType::kF64);

// Rows [first_row, ...) of a weight into `outputs`, of the whole weight; what a kernel found wrong.
CudaFaultWord RunBodies(const RecipeCase& c, const MatrixView& piece, std::int64_t first_row, const AmaxInput& amax,
                        Quantized& outputs) {
  const OnHost host;
  const CudaMatrix matrix = OfView(piece, first_row);
  CudaFaultWord fault = kNoCudaFault;
  const auto views = outputs.views();
  auto* values = reinterpret_cast<std::uint8_t*>(views[0].data);
  auto* codes = reinterpret_cast<std::uint8_t*>(views.size() > 1 ? views[1].data : nullptr);
  auto* scales = reinterpret_cast<float*>(codes);
  float own_amax = 0.0F;
  const CudaTensorAmax tensor_amax =
      amax.tensor < 0.0F ? CudaTensorAmax{&own_amax} : CudaTensorAmax{nullptr, amax.tensor};
  const float* rows = amax.rows.empty() ? nullptr : amax.rows.data();
  const std::string name = c.name;
  if (tensor_amax.device != nullptr) cuda::RunAmax(host, matrix, &own_amax, &fault);
  if (name == "none") cuda::RunCopy(host, matrix, values, &fault);
  if (name == "fp8_per_tensor") cuda::RunFp8PerTensor(host, matrix, tensor_amax, values, scales, &fault);
  if (name == "fp8_per_channel") cuda::RunRows<cuda::Fp8RowEncoder>(host, matrix, rows, values, scales, &fault);
  if (name == "int8_per_channel") cuda::RunRows<cuda::Int8RowEncoder>(host, matrix, rows, values, scales, &fault);
  if (name == "fp8_per_block") {
    cuda::RunFp8PerBlock(host, matrix, c.options.power_of_two_scales, values, scales, &fault);
  }
  if (name == "mxfp8") cuda::RunSmallBlocks<cuda::Mxfp8Format>(host, matrix, {}, values, codes, nullptr, &fault);
  if (name == "mxfp4") cuda::RunSmallBlocks<cuda::Mxfp4Format>(host, matrix, {}, values, codes, nullptr, &fault);
  if (name == "nvfp4") {
    auto* global_scale = reinterpret_cast<float*>(views[2].data);
    cuda::RunSmallBlocks<cuda::Nvfp4Format>(host, matrix, tensor_amax, values, codes, global_scale, &fault);
  }
  return fault;
}

void ExpectReferenceBytes(const RecipeCase& c, const MatrixView& weight, const AmaxInput& amax) {
  const auto recipe = MakeRecipe(c.name, c.options);
  const Quantized expected = ByReference(c, *recipe, weight, amax);
  Quantized got(*recipe, weight.dtype, weight.rows, weight.cols);
  EXPECT_EQ(RunBodies(c, weight, 0, amax, got), kNoCudaFault) << c.name;
  for (std::size_t t = 0; t < got.tensors.size(); ++t) {
    const auto [at, _] = std::mismatch(got.tensors[t].begin(), got.tensors[t].end(), expected.tensors[t].begin());
    ASSERT_TRUE(at == got.tensors[t].end())
        << c.name << ' ' << got.specs[t].name << ' ' << Name(weight.dtype) << ' ' << weight.rows << 'x' << weight.cols
        << ": byte " << at - got.tensors[t].begin();
  }
}

TEST(CudaBodies, EqualTheReferenceOnEveryKindOfWeight) {
  for (const std::string& kind : WeightKinds()) {
    SCOPED_TRACE(kind);
    for (const DType dtype : kWeightTypes) {
      for (const RecipeCase& c : kRecipeCases) {
        ExpectReferenceBytes(c, MakeWeight(kind, dtype, 17, c.Cols(521)).view(), {});
        ExpectReferenceBytes(c, MakeWeight(kind, dtype, 5, 1056, 32).view(), {});
      }
    }
  }
}

TEST(CudaBodies, EqualTheReferenceForOddSizesStridesAndAddresses) {
  for (const std::int64_t rows : {1, 127, 130}) {
    for (const std::int64_t cols : {1, 63, 130, 264}) {
      for (const std::int64_t gap : {0, 6, 32}) {
        for (const RecipeCase& c : kRecipeCases) {
          const std::int64_t whole = c.Cols(cols);
          const Weight weight = MakeWeight("mixed", DType::kBF16, rows, whole + 16, gap);
          ExpectReferenceBytes(c, weight.Part(0, rows, 0, whole), {});
          ExpectReferenceBytes(c, weight.Part(0, rows, 3, whole), {});
        }
      }
    }
  }
  ExpectReferenceBytes(kChannelCase, MakeWeight("mixed", DType::kF32, 9, 190, 6).view(), {});
}

// They hold a row of so many units at once, or parts of it that are as long as each other.
TEST(RowTeams, AreAsFewWarpsAsWillDo) {
  const auto threads = [](std::int64_t units) { return cuda::RowTeams(7, units, 4, 512).threads; };
  EXPECT_EQ(cuda::RowTeams(7, 0, 4, 512).teams_per_block, 8);
  EXPECT_EQ(threads(0), 32);
  EXPECT_EQ(threads(128), 32);
  EXPECT_EQ(threads(129), 64);
  EXPECT_EQ(threads(640), 160);
  EXPECT_EQ(threads(2048), 512);
  EXPECT_EQ(threads(2049), 288);
  EXPECT_EQ(threads(3584), 448);
  EXPECT_EQ(threads(4096), 512);
  EXPECT_EQ(threads(4097), 352);
}

// Notes which bodies would run.
class Noting {
 public:
  explicit Noting(std::set<std::type_index>& bodies) : bodies_(bodies) {}
  template <class Body>
  void Run(const typename Body::Arguments& /*arguments*/, const cuda::Grid& /*grid*/) const {
    bodies_.insert(typeid(Body));
  }

 private:
  std::set<std::type_index>& bodies_;
};

void NoteBodies(const CudaMatrix& piece, std::set<std::type_index>& bodies) {
  const Noting noting(bodies);
  cuda::RunAmax(noting, piece, nullptr, nullptr);
  cuda::RunRowAmax(noting, piece, nullptr, nullptr);
  cuda::RunCopy(noting, piece, nullptr, nullptr);
  cuda::RunFp8PerTensor(noting, piece, {}, nullptr, nullptr, nullptr);
  cuda::RunRows<cuda::Fp8RowEncoder>(noting, piece, nullptr, nullptr, nullptr, nullptr);
  cuda::RunFp8PerBlock(noting, piece, false, nullptr, nullptr, nullptr);
  cuda::RunSmallBlocks<cuda::Nvfp4Format>(noting, piece, {}, nullptr, nullptr, nullptr, nullptr);
}

// Else a kernel that was not loaded is when a weight first needs it.
TEST(Dispatch, TakesNoWayThatLoadingDoesNot) {
  std::set<std::type_index> loaded;
  cuda::ForEveryWay([&](const CudaMatrix& piece) { NoteBodies(piece, loaded); });
  std::set<std::type_index> taken;
  for (const DType dtype : kWeightTypes) {
    for (const std::int64_t rows : {0, 1, 2, 300}) {
      for (const std::int64_t cols : {0, 1, 32, 48, 8200, 70000}) {
        for (const std::int64_t gap : {0, 8, 16}) {
          const std::int64_t stride = cols * BitsPerElement(dtype) / 8 + gap;
          NoteBodies({dtype, nullptr, rows, cols, stride, 0}, taken);
        }
      }
    }
  }
  EXPECT_EQ(taken, loaded);
  EXPECT_EQ(loaded.size(), 3U * 2 * (2 + 1 + 2 + 2 + 1 + 1 + 2));
}

TEST(CudaBodies, RowsOfEveryLengthEqualTheReference) {
  for (const std::int64_t cols : kRowLengths) {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      const Weight weight = MakeWeight("mixed", dtype, 3, cols);
      ExpectReferenceBytes(kChannelCase, weight.view(), {});
      ExpectReferenceBytes(kInt8Case, weight.view(), {});
    }
  }
}

TEST(CudaBodies, AGivenAmaxThatIsLargerThanTheWeightsOwnMakesTheScale) {
  WorkerPool pool(1);
  for (const DType dtype : kWeightTypes) {
    const Weight weight = MakeWeight("mixed", dtype, 40, 192, 16);
    std::vector<float> rows(40);
    ScanRows(weight.view(), pool, rows);
    for (std::size_t r = 0; r < rows.size(); ++r) rows[r] *= 1.0F + static_cast<float>(r % 3);
    for (const RecipeCase& c : {kTensorCase, kChannelCase, kInt8Case, kNvfp4Case}) {
      ExpectReferenceBytes(c, weight.view(), {.tensor = 3e5F, .rows = rows});
    }
  }
}

TEST(CudaBodies, EqualTheReferenceOnEveryFiniteBf16ValueAndEveryMantissaOfTheScale) {
  for (const RecipeCase& c : kRecipeCases) ExpectReferenceBytes(c, EveryBf16(0x7f80).view(), {});
  const Weight small = EveryBf16(0x4300);  // below 128
  for (std::uint32_t mantissa = 0; mantissa < 128; mantissa += 3) {
    const auto amax = static_cast<float>(DecodeElement(DType::kBF16, 0x4300 + mantissa));
    const std::vector<float> rows(256, amax);
    for (const RecipeCase& c : {kTensorCase, kChannelCase, kInt8Case, kNvfp4Case}) {
      ExpectReferenceBytes(c, small.view(), {.tensor = amax, .rows = rows});
    }
  }
}

TEST(CudaBodies, EqualTheReferenceAtTheEdgesOfScales) {
  const auto next = [](float value) { return std::nextafter(value, 3e38F); };
  const std::array<float, 12> edges = {0.0F,      1e-45F,    1e-38F, 1.31e-36F,   1.33e-36F,     4.04e-33F,
                                       4.06e-33F, 9.99e-29F, 1e-4F,  next(1e-4F), 1.0F / 512.0F, 3.4e38F};
  for (const float amax : edges) {
    const Weight weight = MakeWeight(DType::kF32, 3, 64, 0, [&](std::int64_t r, std::int64_t c) {
      return BitsOf(DType::kF32,
                    static_cast<double>(amax) * static_cast<double>(c - 32) / 32.0 / static_cast<double>(r + 1));
    });
    for (const RecipeCase& c : kRecipeCases) ExpectReferenceBytes(c, weight.view(), {});
  }
}

TEST(CudaBodies, PieceByPieceGivesTheBytesOfTheWhole) {
  const std::int64_t rows = 700;
  const Weight weight = MakeWeight("mixed", DType::kBF16, rows, 224, 32);
  WorkerPool pool(1);
  std::vector<float> row_amax(static_cast<std::size_t>(rows));
  ScanRows(weight.view(), pool, row_amax);
  const AmaxInput amax{.tensor = Scan(weight.view(), pool).amax, .rows = row_amax};
  for (const RecipeCase& c : kRecipeCases) {
    const auto recipe = MakeRecipe(c.name, c.options);
    Quantized pieces(*recipe, DType::kBF16, rows, 224);
    for (const std::int64_t first : {512, 128, 256, 0}) {
      const std::int64_t count = std::min<std::int64_t>(first == 256 ? 256 : first == 512 ? 256 : 128, rows - first);
      EXPECT_EQ(RunBodies(c, weight.Part(first, count, 0, 224), first, amax, pieces), kNoCudaFault);
    }
    EXPECT_EQ(pieces, ByReference(c, *recipe, weight.view(), amax)) << c.name;
  }
}

// Together they are whole units, so wide accesses would do; but not where the second piece begins.
TEST(CudaBodies, PiecesOfRowsThatAreNoWholeUnitsJoinUp) {
  const Weight weight = MakeWeight("mixed", DType::kBF16, 17, 37);
  WorkerPool pool(1);
  const AmaxInput amax{.tensor = Scan(weight.view(), pool).amax, .rows = {}};
  for (const RecipeCase& c : {kCopyCase, kTensorCase, kChannelCase, kInt8Case}) {
    const auto recipe = MakeRecipe(c.name, c.options);
    Quantized pieces(*recipe, DType::kBF16, 17, 37);
    EXPECT_EQ(RunBodies(c, weight.Part(0, 1, 0, 37), 0, amax, pieces), kNoCudaFault);
    EXPECT_EQ(RunBodies(c, weight.Part(1, 16, 0, 37), 1, amax, pieces), kNoCudaFault);
    EXPECT_EQ(pieces, ByReference(c, *recipe, weight.view(), amax)) << c.name;
  }
}

TEST(CudaBodies, EmptyWeightsLeaveTheirScales) {
  for (const RecipeCase& c : kRecipeCases) {
    ExpectReferenceBytes(c, {DType::kBF16, nullptr, 0, 64, 128}, {.tensor = 2.0F, .rows = {}});
    ExpectReferenceBytes(c, {DType::kBF16, nullptr, 4, 0, 0}, {.tensor = 2.0F, .rows = {}});
  }
}

TEST(CudaBodies, TheAmaxIsThatOfTheScan) {
  WorkerPool pool(1);
  for (const DType dtype : kWeightTypes) {
    for (const std::int64_t cols : {1, 40, 1048, 9000}) {
      const Weight weight = MakeWeight("mixed", dtype, 70, cols, 16);
      float amax = 0.0F;
      std::vector<float> rows(71, -1.0F);
      CudaFaultWord fault = kNoCudaFault;
      cuda::RunAmax(OnHost(), OfView(weight.view(), 1), &amax, &fault);
      cuda::RunRowAmax(OnHost(), OfView(weight.view(), 1), rows.data(), &fault);
      std::vector<float> expected(70);
      ScanRows(weight.view(), pool, expected);
      expected.insert(expected.begin(), -1.0F);
      EXPECT_EQ(amax, Scan(weight.view(), pool).amax);
      EXPECT_EQ(rows, expected);
      EXPECT_EQ(fault, kNoCudaFault);
    }
  }
}

std::optional<CudaFault> FaultOf(const RecipeCase& c, const Weight& weight, const AmaxInput& amax) {
  const auto recipe = MakeRecipe(c.name, c.options);
  Quantized outputs(*recipe, weight.dtype, weight.rows + 128, weight.cols);
  const CudaFaultWord word = RunBodies(c, weight.view(), 128, amax, outputs);
  if (word == kNoCudaFault) return std::nullopt;
  return DecodeCudaFault(word);
}

TEST(CudaBodies, TheFirstNanOrInfinityIsReportedWithItsIndexInTheWeight) {
  using Kind = CudaFault::Kind;
  const std::vector<float> rows(400, 1e4F);
  for (const DType dtype : kWeightTypes) {
    const std::uint32_t infinity = dtype == DType::kF32 ? 0x7f800000U : dtype == DType::kBF16 ? 0x7f80U : 0x7c00U;
    const std::uint32_t sign = dtype == DType::kF32 ? 0x80000000U : 0x8000U;
    for (const RecipeCase& c : kRecipeCases) {
      for (const auto& [row, col] : {std::pair<int, int>{0, 0}, {1, 151}, {129, 7}, {130, 159}}) {
        Weight weight = MakeWeight("random", dtype, 131, 160);
        weight.SetBits(130, 159, infinity + 1);
        const std::pair<Kind, std::uint32_t> wrong[] = {
            {Kind::kNan, infinity + 1}, {Kind::kInfinity, infinity}, {Kind::kMinusInfinity, infinity | sign}};
        for (const auto& [kind, bits] : wrong) {
          weight.SetBits(row, col, bits);
          const auto fault = FaultOf(c, weight, {.tensor = 1e4F, .rows = rows});
          ASSERT_TRUE(fault.has_value()) << c.name;
          EXPECT_EQ(fault->kind, kind) << c.name;
          EXPECT_EQ(fault->index, (128 + row) * 160 + col) << c.name;
        }
      }
    }
  }
}

TEST(CudaBodies, TheFirstNanOfARowIsReportedWhicheverPartOfItABlockHoldsLast) {
  for (const RecipeCase& c : {kChannelCase, kInt8Case}) {
    for (const int col : {0, 16384, 28671}) {
      Weight weight = MakeWeight("random", DType::kBF16, 2, 28672);
      weight.SetBits(1, 28671, 0x7fc1);
      weight.SetBits(1, col, 0x7fc1);
      const auto fault = FaultOf(c, weight, {});
      ASSERT_TRUE(fault.has_value()) << c.name;
      EXPECT_EQ(fault->kind, CudaFault::Kind::kNan) << c.name;
      EXPECT_EQ(fault->index, 129 * 28672 + col) << c.name;
    }
  }
}

TEST(CudaBodies, AMagnitudeAboveTheGivenOneIsReportedAfterEveryNan) {
  Weight weight = MakeWeight("random", DType::kBF16, 20, 64);
  weight.SetBits(7, 5, BitsOf(DType::kBF16, -3.0));
  weight.SetBits(9, 5, BitsOf(DType::kBF16, 2.0));
  const std::vector<float> rows(300, 2.0F);
  const AmaxInput amax{.tensor = 2.0F, .rows = rows};
  for (const RecipeCase& c : {kTensorCase, kChannelCase, kInt8Case, kNvfp4Case}) {
    Weight with_nan = weight;
    with_nan.SetBits(11, 1, 0x7fc1);
    EXPECT_EQ(FaultOf(c, weight, amax)->kind, CudaFault::Kind::kAboveAmax) << c.name;
    EXPECT_EQ(FaultOf(c, weight, amax)->index, (128 + 7) * 64 + 5) << c.name;
    EXPECT_EQ(FaultOf(c, with_nan, amax)->kind, CudaFault::Kind::kNan) << c.name;
    EXPECT_EQ(FaultOf(c, with_nan, amax)->index, (128 + 11) * 64 + 1) << c.name;
  }
}

TEST(CudaCodes, EqualTheDefinitionAllOverTheirRange) {
  // Every so many bit patterns.
  for (std::uint32_t bits = 0; bits <= BitsOfFloat(464.0F); bits += 331) {
    const float p = FloatOfBits(bits);
    ASSERT_EQ(cuda::E4M3Code(p) & 0x7f, EncodeE4M3(p)) << p;
  }
  for (std::uint32_t bits = 0; bits <= BitsOfFloat(1e30F); bits += 1021) {
    const float p = FloatOfBits(bits);
    ASSERT_EQ(cuda::SaturatedE2M1Code(p) & 7, EncodeE2M1(p)) << p;
    if (p <= 6.0F) {
      ASSERT_EQ(cuda::E2M1Code(p) & 7, EncodeE2M1(p)) << p;
    }
  }
  EXPECT_EQ(cuda::E2M1Code(6.0F) & 7, 7);
  for (std::uint32_t code = 0; code < 0x7f; ++code) {
    EXPECT_EQ(cuda::E4M3Value(code), static_cast<float>(DecodeElement(DType::kF8E4M3, code)));
  }
}

TEST(CudaCodes, TheCorrectedQuotientIsTheDivisions) {
  std::mt19937 random(7);
  for (int i = 0; i < 3'000'000; ++i) {
    const float s =
        std::ldexp(1.0F + static_cast<float>(random() >> 9) * 0x1p-23F, static_cast<int>(random() % 100) - 50);
    const float x = s * (static_cast<float>(random() >> 8) * 0x1p-24F) * 448.0F;
    ASSERT_EQ(cuda::Quotient(x, s, 1.0F / s), x / s) << x << " / " << s;
    ASSERT_EQ(cuda::Quotient(-x, s, 1.0F / s), -x / s) << -x << " / " << s;
  }
  EXPECT_TRUE(std::signbit(cuda::Quotient(-0.0F, 0.3F, 1.0F / 0.3F)));
  EXPECT_FALSE(std::signbit(cuda::Quotient(0.0F, 0.3F, 1.0F / 0.3F)));
}

// All up to where remainders are exact, and many of those above.
TEST(CudaCodes, ASixthIsTheDivisions) {
  const std::uint32_t dense = BitsOfFloat(2.37e-38F);
  for (std::uint32_t bits = 0; bits < kInfinityBits; bits += bits < dense ? 1 : 331) {
    const float x = FloatOfBits(bits);
    ASSERT_EQ(BitsOfFloat(cuda::SixthOf(x)), BitsOfFloat(x / 6.0F)) << x;
  }
}

TEST(CudaElements, HaveTheirValues) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const std::uint32_t words[] = {bits | bits << 16};
    for (const int i : {0, 1}) {
      if ((bits & 0x7f80) != 0x7f80) {
        ASSERT_EQ(BitsOfFloat(cuda::BF16::Value(words, i)), bits << 16);
      }
      if ((bits & 0x7c00) != 0x7c00) {
        const auto value = static_cast<float>(DecodeElement(DType::kF16, bits));
        ASSERT_EQ(BitsOfFloat(cuda::F16::Value(words, i)), BitsOfFloat(value)) << bits;
      }
    }
  }
}

}  // namespace
}  // namespace layercast

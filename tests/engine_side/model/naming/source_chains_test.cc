// Chains of transforms against their slow and obvious meaning: a tensor is the list of its elements, each of them the
// number of an element of the source, and a transform makes other lists of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "layercast/model/source_transforms.h"
#include "src/tensor/walk.h"

namespace layercast {
namespace {

using Kind = SourceTransform::Kind;

struct Listed {
  Shape shape;
  std::vector<std::int64_t> elements;  // row-major

  std::int64_t Number(const Shape& at) const {
    std::int64_t number = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) number = number * shape[d] + at[d];
    return elements[static_cast<std::size_t>(number)];
  }
};

// The list of this shape whose element at some place is `from`'s at the place that `place` gives.
template <typename Place>
Listed Make(const Listed& from, Shape shape, const Place& place) {
  Listed made{shape, {}};
  const std::int64_t count = NumElements(shape);
  for (std::int64_t i = 0; i < count; ++i) {
    Shape at(shape.size());
    for (std::size_t d = shape.size(), rest = static_cast<std::size_t>(i); d-- > 0;) {
      at[d] = static_cast<std::int64_t>(rest % static_cast<std::size_t>(shape[d]));
      rest /= static_cast<std::size_t>(shape[d]);
    }
    made.elements.push_back(from.Number(place(at)));
  }
  return made;
}

Listed Swapped(const Listed& from) {
  const std::size_t rank = from.shape.size();
  Shape shape = from.shape;
  std::swap(shape[rank - 2], shape[rank - 1]);
  return Make(from, shape, [&](Shape at) {
    std::swap(at[rank - 2], at[rank - 1]);
    return at;
  });
}

// Every `step`-th along the axis from `first` on.
Listed Some(const Listed& from, std::size_t axis, std::int64_t first, std::int64_t count, std::int64_t step) {
  Shape shape = from.shape;
  shape[axis] = count;
  return Make(from, shape, [&](Shape at) {
    at[axis] = first + at[axis] * step;
    return at;
  });
}

std::vector<Listed> Meaning(const Listed& from, const SourceTransform& transform) {
  std::vector<Listed> made;
  const std::size_t axis = transform.axis;
  std::int64_t first = 0;
  switch (transform.kind) {
    case Kind::kTranspose: return {Swapped(from)};
    case Kind::kReshape: return {{transform.shape, from.elements}};
    case Kind::kSqueeze:
      made = {from};
      made[0].shape.erase(made[0].shape.begin() + static_cast<std::ptrdiff_t>(axis));
      return made;
    case Kind::kSplit:
      for (const auto& part : transform.parts) {
        made.push_back(Some(from, axis, first, part.size, 1));
        first += part.size;
      }
      return made;
    case Kind::kDeinterleave: break;
  }
  const auto parts = static_cast<std::int64_t>(transform.parts.size());
  for (std::int64_t i = 0; i < parts; ++i) made.push_back(Some(from, axis, i, from.shape[axis] / parts, parts));
  return made;
}

class RandomChain {
 public:
  explicit RandomChain(unsigned seed) : random_(seed) {}

  std::int64_t Below(std::int64_t bound) { return std::uniform_int_distribution<std::int64_t>(0, bound - 1)(random_); }

  Shape SomeShape(std::int64_t elements) {
    Shape shape;
    while (shape.size() < 3 && elements > 1 && Below(4) != 0) {
      std::vector<std::int64_t> divisors;
      for (std::int64_t d = 1; d <= elements; ++d) {
        if (elements % d == 0) divisors.push_back(d);
      }
      shape.push_back(divisors[static_cast<std::size_t>(Below(static_cast<std::int64_t>(divisors.size())))]);
      elements /= shape.back();
    }
    shape.push_back(elements);
    return shape;
  }

  // One that applies to a tensor of this shape, if there is one of the kind.
  std::optional<SourceTransform> Next(const Shape& shape) {
    const auto match = NameRule::Match::kPrefix;
    const auto axis = static_cast<std::size_t>(Below(static_cast<std::int64_t>(shape.size())));
    const std::int64_t extent = shape[axis];
    switch (static_cast<Kind>(Below(5))) {
      case Kind::kSqueeze:
        if (extent != 1 || shape.size() == 1) return std::nullopt;
        return SourceTransform::Squeeze(match, "w", axis);
      case Kind::kReshape: return SourceTransform::Reshape(match, "w", SomeShape(NumElements(shape)));
      case Kind::kTranspose:
        if (shape.size() < 2) return std::nullopt;
        return SourceTransform::Transpose(match, "w");
      case Kind::kSplit: {
        if (extent < 2) return std::nullopt;
        const std::int64_t first = 1 + Below(extent - 1);
        return SourceTransform::Split(match, "w", axis, {{"w.a", first}, {"w.b", extent - first}});
      }
      case Kind::kDeinterleave: break;
    }
    if (extent % 2 != 0) return std::nullopt;
    return SourceTransform::Deinterleave(match, "w", axis, {"w.a", "w.b"});
  }

  Box SomeBox(const Shape& shape) {
    Box box = Box::Whole(shape);
    for (std::size_t d = 0; d < box.rank; ++d) {
      box.begin[d] = Below(shape[d]);
      box.extent[d] = 1 + Below(shape[d] - box.begin[d]);
    }
    return box;
  }

 private:
  std::mt19937 random_;
};

std::vector<std::int64_t> ElementsIn(const Shape& shape, const Box& box) {
  std::vector<std::int64_t> elements;
  Walk::Into(shape, box).ForEachRun([&](std::int64_t offset, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) elements.push_back(offset + i);
  });
  return elements;
}

Listed Part(const Listed& whole, const Box& box) {
  const Shape shape(box.extent.begin(), box.extent.begin() + box.rank);
  return Make(whole, shape, [&](Shape at) {
    for (std::size_t d = 0; d < at.size(); ++d) at[d] += box.begin[d];
    return at;
  });
}

void ExpectReads(const SourceView& view, const Listed& meant, const Box& box) {
  const PlacedPiece piece = view.InSource({0, box, box, {}});
  const Listed part = Part(meant, box);
  ASSERT_EQ(ElementsIn(view.read_as, piece.source), (piece.order.transposed ? Swapped(part) : part).elements);
}

// How many of them are read; the others are refused.
int Read(RandomChain& random, int chains) {
  int read = 0;
  for (int i = 0; i < chains; ++i) {
    const Shape shape =
        random.SomeShape(std::vector<std::int64_t>{12, 24, 36, 60, 64}.at(static_cast<std::size_t>(random.Below(5))));
    Listed whole{shape, {}};
    for (std::int64_t e = 0; e < NumElements(shape); ++e) whole.elements.push_back(e);
    std::vector<Listed> meant = {whole};
    std::vector<SourceTransform> chain;
    for (std::int64_t left = 1 + random.Below(5); left > 0; --left) {
      const auto next = random.Next(meant[0].shape);
      const bool alike = std::ranges::all_of(meant, [&](const Listed& one) { return one.shape == meant[0].shape; });
      if (!next || (!alike && next->kind != Kind::kTranspose)) continue;
      chain.push_back(*next);
      std::vector<Listed> made;
      for (const Listed& one : meant) std::ranges::move(Meaning(one, *next), std::back_inserter(made));
      meant = std::move(made);
    }
    if (chain.empty()) continue;
    std::string said = ToString(shape);
    for (const SourceTransform& transform : chain) said += "; " + transform.Describe();
    SCOPED_TRACE(said);
    std::vector<SourceView> views;
    try {
      views = SourceTransforms(chain).Apply({"w", DType::kBF16, shape});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
      continue;
    }
    ++read;
    EXPECT_EQ(views.size(), meant.size());
    for (std::size_t v = 0; v < std::min(views.size(), meant.size()); ++v) {
      EXPECT_EQ(views[v].spec.shape, meant[v].shape);
      ExpectReads(views[v], meant[v], Box::Whole(meant[v].shape));
      const Box box = random.SomeBox(meant[v].shape);
      try {
        ExpectReads(views[v], meant[v], box);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
      }
    }
    if (::testing::Test::HasFailure()) return read;
  }
  return read;
}

TEST(SourceTransforms, OfRandomChainsMeanWhatTheySay) {
  RandomChain random(20261124);
  constexpr int kChains = 4000;
  const int read = Read(random, kChains);
  EXPECT_GT(read, kChains * 3 / 4);
}

}  // namespace
}  // namespace layercast

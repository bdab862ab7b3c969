// Publishes a checkpoint through the public API until standard input ends: the other process of test_wire.py.
//   publisher_driver FOLDER snapshot|stream [layer|checkpoint|SEED [RANK/RANKS|hold=N]]
// Prints its endpoint on a line when it is ready. A number instead of an order: shuffled by that seed. With a rank:
// what that rank of a trainer holds, as tests/support/python/sharded_trainer.py writes it. With hold=N: a stream stays
// before its tensor N until a line comes on standard input.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <latch>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "layercast/error.h"
#include "layercast/publisher.h"
#include "src/checkpoint/formats/checkpoint.h"

namespace layercast {
namespace {

Weights Shuffled(const std::string& folder, std::uint32_t seed) {
  const Checkpoint checkpoint = Checkpoint::Open(folder);
  std::vector<std::uint32_t> order(checkpoint.specs().size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::shuffle(order, std::mt19937(seed));
  Weights weights;
  for (const std::uint32_t index : order) weights.specs.push_back(checkpoint.specs()[index]);
  weights.walk = [checkpoint, order](std::span<const std::string>) { return checkpoint.Weights(order); };
  return weights;
}

TensorPart PartOf(const nlohmann::json& parts, const std::string& name) {
  const auto& part = parts.at(name);
  return {.whole = part.at("whole").get<Shape>(), .offsets = part.at("offsets").get<Shape>()};
}

Weights WithParts(Weights weights, const std::string& folder) {
  const auto parts = nlohmann::json::parse(std::ifstream(folder + "/parts.json"));
  for (const TensorSpec& spec : weights.specs) weights.parts.emplace_back(PartOf(parts, spec.name));
  weights.walk = [walk = std::move(weights.walk), parts](std::span<const std::string> order) {
    auto next = [whole = std::shared_ptr(walk(order)), parts]() -> std::optional<NamedTensor> {
      std::optional<NamedTensor> named = whole->Next();
      if (named) named->part = PartOf(parts, named->name);
      return named;
    };
    return MakeWeightsIterator(std::move(next));
  };
  return weights;
}

// The walks wait before tensor `index` until the latch is open.
Weights Holding(Weights weights, std::size_t index, std::latch& go_on) {
  weights.walk = [walk = std::move(weights.walk), index, &go_on](std::span<const std::string> order) {
    auto next = [whole = std::shared_ptr(walk(order)), left = index, &go_on]() mutable {
      if (left-- == 0) go_on.wait();
      return whole->Next();
    };
    return MakeWeightsIterator(std::move(next));
  };
  return weights;
}

VersionPart ParsePart(const std::string& text) {
  const std::size_t slash = text.find('/');
  return {std::stoi(text.substr(0, slash)), std::stoi(text.substr(slash + 1))};
}

void Run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 2) throw Error(ErrorCode::kInvalidArgument, "FOLDER snapshot|stream [ORDER]");
  const std::string order = arguments.size() > 2 ? arguments[2] : "layer";
  PublishOptions options{.lineage = "wire", .step = 1};
  if (arguments[1] == "stream") options.mode = PublishMode::kStream;
  options.layer_order = order == "layer";
  const bool shuffled = order != "layer" && order != "checkpoint";

  Weights weights = shuffled ? Shuffled(arguments[0], static_cast<std::uint32_t>(std::stoul(order)))
                             : Weights::FromCheckpoint(arguments[0]);
  std::latch go_on(1);
  constexpr std::string_view kHold = "hold=";
  if (arguments.size() > 3 && arguments[3].starts_with(kHold)) {
    weights = Holding(std::move(weights), std::stoul(arguments[3].substr(kHold.size())), go_on);
  } else if (arguments.size() > 3) {
    options.part = ParsePart(arguments[3]);
    weights = WithParts(std::move(weights), arguments[0]);
  }
  Publisher publisher({});
  const PublishedVersion published = publisher.Publish(options, std::move(weights));
  std::printf("%s\n", publisher.endpoint().c_str());
  std::fflush(stdout);
  std::cin.get();
  go_on.count_down();
  while (std::cin.get() != std::char_traits<char>::eof()) {
  }
}

}  // namespace
}  // namespace layercast

int main(int argc, char** argv) {
  try {
    layercast::Run({argv + 1, argv + argc});
  } catch (const layercast::Error& error) {
    std::cerr << layercast::ErrorCodeName(error.code()) << ": " << error.what() << "\n";
    return 1;
  }
  return 0;
}

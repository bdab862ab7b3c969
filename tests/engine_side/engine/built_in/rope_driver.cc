// Test program: powers and frequencies of rotary embeddings, for the oracle in test_rope.py. A request is one line of
// JSON on standard input, its answer one on standard output:
//   {"base": 10000, "exponents": [0, 0.5]}                                     {"powers": [1, 100]}
//   {"type": "linear", "theta": 10000, "dim": 4, "max_positions": 64, "numbers": {"factor": 2}}
//                                                                   {"frequencies": [0.5, 0.005], "attention_factor":
//                                                                   1}
// Numbers are fp32, and written so that they are read as the same bits.
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine_side/engine/built_in/power.h"
#include "engine_side/engine/built_in/rope.h"

namespace {

using namespace layercast;
using Json = nlohmann::json;

Json PowersOf(const Json& request) {
  const auto exponents = request.at("exponents").get<std::vector<float>>();
  return {{"powers", Powers(request.at("base").get<float>(), exponents)}};
}

Json RopeOf(const Json& request) {
  RotaryEmbedding embedding;
  embedding.rope.type = request.at("type");
  embedding.rope.theta = request.at("theta");
  embedding.rope.numbers = request.at("numbers").get<std::map<std::string, double>>();
  embedding.dim = request.at("dim");
  embedding.max_positions = request.at("max_positions");
  const Rope rope = MakeRope(embedding);
  return {{"frequencies", rope.inverse_frequencies}, {"attention_factor", rope.attention_factor}};
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const Json request = Json::parse(line);
    std::cout << (request.contains("base") ? PowersOf(request) : RopeOf(request)) << std::endl;
  }
}

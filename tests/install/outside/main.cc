// Uses the installed library as a stranger would; exits with 0 where it behaves.
#include <iostream>

#include "layercast/error.h"
#include "layercast/tensor.h"
#include "layercast/version.h"

int main() {
  const layercast::TensorSpec spec{.name = "w", .dtype = layercast::DType::kBF16, .shape = {3, 4}};
  if (spec.num_bytes() != 24) {
    std::cerr << "num_bytes: expected 24, got " << spec.num_bytes() << '\n';
    return 1;
  }
  if (layercast::Digest::FromHex("00112233445566778899aabbccddeeff")->ToHex() != "00112233445566778899aabbccddeeff") {
    std::cerr << "a digest does not survive its hexadecimal form\n";
    return 1;
  }
  try {
    layercast::NumElements({2, -1});
  } catch (const layercast::Error& error) {  // across the library's border
    std::cout << Describe(spec) << "; caught: " << error.what() << '\n';
    return error.code() == layercast::ErrorCode::kInvalidArgument ? 0 : 1;
  }
  std::cerr << "a negative dimension was accepted\n";
  return 1;
}

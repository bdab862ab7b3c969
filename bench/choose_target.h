// `--target=AVX2` on the command line of a benchmark: it then measures the code of that instruction set.
#pragma once

#include <hwy/targets.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string_view>

namespace layercast::bench {

// Chooses the instruction set of `--target=NAME`, and removes that from the arguments.
inline void ChooseTarget(int& argc, char** argv) {
  constexpr std::string_view kOption = "--target=";
  char** const end = std::remove_if(argv + 1, argv + argc, [&](const char* argument) {
    if (!std::string_view(argument).starts_with(kOption)) return false;
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      if (argument + kOption.size() == std::string_view(hwy::TargetName(target))) {
        hwy::SetSupportedTargetsForTest(target);
        return true;
      }
    }
    std::cerr << "this machine and this build have no " << argument + kOption.size() << '\n';
    std::exit(2);
  });
  argc = static_cast<int>(end - argv);
}

}  // namespace layercast::bench

// Lists such as "a,b", as command lines and the RPC have them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace layercast {

// The items between the commas, empty ones too: the caller can refuse those with a better message.
inline std::vector<std::string> AtCommas(const std::string& list) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    items.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

}  // namespace layercast

// Lists such as "a,b" or "a, b", as command lines and the RPC have them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace layercast {

// The items between the commas, without the blanks around them. Empty ones too: the caller can refuse those with a
// better message.
inline std::vector<std::string> AtCommas(const std::string& list) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view item = std::string_view(list).substr(begin, end - begin);
    const std::size_t first = std::min(item.find_first_not_of(" \t"), item.size());
    items.emplace_back(item.substr(first, item.find_last_not_of(" \t") + 1 - first));
    begin = end + 1;
  }
  return items;
}

}  // namespace layercast

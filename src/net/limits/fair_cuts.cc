#include "src/net/limits/fair_cuts.h"

#include <algorithm>
#include <map>

namespace layercast {

std::vector<std::uint64_t> HandshakesToCut(std::vector<Handshake> under_way, const HandshakeBounds& bounds) {
  std::ranges::sort(under_way, {}, &Handshake::number);
  std::size_t all = under_way.size();
  std::map<std::string, std::size_t> of_address;
  for (const Handshake& one : under_way) ++of_address[one.address];
  std::vector<std::uint64_t> cut;
  for (const Handshake& one : under_way) {
    std::size_t& here = of_address[one.address];
    const bool one_of_many = one.age >= bounds.grace && (all > bounds.most || here > bounds.of_address);
    if (one.received <= bounds.bytes && !one_of_many) continue;
    cut.push_back(one.number);
    --all;
    --here;
  }
  return cut;
}

std::vector<std::uint64_t> HoldersToCut(std::vector<Holder> holders, std::uint64_t budget) {
  std::map<std::string, std::uint64_t> of;
  std::uint64_t all = 0;
  for (const Holder& one : holders) {
    of[one.who] += one.bytes;
    all += one.bytes;
  }
  std::ranges::sort(holders, {}, [](const Holder& one) { return std::pair(one.begun, one.number); });
  std::vector<std::uint64_t> cut;
  while (all > budget) {
    const auto most = std::ranges::max_element(of, {}, [](const auto& one) { return one.second; });
    const auto first =
        std::ranges::find_if(holders, [&](const Holder& one) { return one.who == most->first && one.bytes > 0; });
    cut.push_back(first->number);
    all -= first->bytes;
    most->second -= first->bytes;
    holders.erase(first);
  }
  return cut;
}

}  // namespace layercast

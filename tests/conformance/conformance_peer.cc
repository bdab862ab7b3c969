// The other process of the conformance suite: a publisher or receiver that waits to be killed or frozen.
//   conformance_peer offer TRANSPORT [FAILPOINTS]    prints its address
//   conformance_peer fetch TRANSPORT ADDRESS [POINT] goes as far as POINT, and prints it: "connected", "asked", "under
//                                                     way" (with most of its requests unanswered; the default), "done"
// Either ends when its standard input does.
#include <array>
#include <iostream>
#include <string>

#include "tests/conformance/published_bytes.h"

namespace layercast::test {
namespace {

void WaitForTheEnd() {
  std::string line;
  while (std::getline(std::cin, line)) {
  }
}

void OfferUntilTheEnd(const std::string& transport, const std::string& failing) {
  FailPoints failpoints(failing);
  const auto end = TransportNamed(transport)->Offering({.bind_host = HostFrom("LAYERCAST_PEER_HOST")});
  end->Arm(failpoints);
  const PublishedBytes first(*end, 7, kPeerSizes);
  const PublishedBytes second(*end, 8, kPeerSizes);
  std::cout << end->address() << std::endl;
  WaitForTheEnd();
}

void FetchUpTo(const std::string& point, const std::string& transport, const std::string& address) {
  const auto end = TransportNamed(transport)->Connect(address, Deadline::After(kPatience));
  std::vector<Fetch> fetches;
  for (std::uint64_t i = 0; i < 100; ++i) fetches.emplace_back(std::vector<Region>{{0, i, 2'000'000, 1, 2'000'000}});
  if (point != "connected") {
    for (std::uint64_t i = 0; i < fetches.size(); ++i) fetches[i].Submit(*end, i, 7);
  }
  const std::size_t chunks = point == "done" ? fetches.size() : point == "under way" ? 1 : 0;
  for (std::size_t i = 0; i < chunks; ++i) end->Poll(Deadline::After(kPatience));
  std::cout << point << std::endl;
  WaitForTheEnd();
}

}  // namespace
}  // namespace layercast::test

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.at(0) == "offer") {
    layercast::test::OfferUntilTheEnd(arguments.at(1), arguments.size() > 2 ? arguments[2] : "");
  }
  if (arguments.at(0) == "fetch") {
    layercast::test::FetchUpTo(arguments.size() > 3 ? arguments[3] : "under way", arguments.at(1), arguments.at(2));
  }
  return 0;
}

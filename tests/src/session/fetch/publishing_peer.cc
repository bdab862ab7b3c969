// The other process of dying_publisher_test.cc: a publisher that waits to be killed or frozen.
//   publishing_peer CHANNEL[,CHANNEL...] RANK RANKS [FAILPOINTS]    prints its endpoint
// It ends when its standard input does.
#include <iostream>
#include <string>
#include <vector>

#include "src/base/bytes/comma_list.h"
#include "tests/support/session/publishing.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  layercast::WorkerPool pool(2);
  layercast::FailPoints failpoints(arguments.size() > 3 ? arguments[3] : "");
  const layercast::OfferServiceOptions options{
      .endpoint = "tcp://127.0.0.1:0", .name = "publisher", .channels = layercast::AtCommas(arguments.at(0))};
  layercast::OfferService service(options, pool, failpoints);
  const layercast::VersionPart part{std::stoi(arguments.at(1)), std::stoi(arguments.at(2))};
  const layercast::testing::PublishedWeights published(service, layercast::testing::SomeWeights(), "run", 3, part);
  std::cout << service.endpoint() << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
  }
  return 0;
}

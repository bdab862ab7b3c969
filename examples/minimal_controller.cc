// The smallest controller: at every Enter it brings all engines to the publisher's newest version, and prints each
// one's outcome.
//   minimal_controller tcp://127.0.0.1:41234 tcp://127.0.0.1:41235 [more engines, as `layercast serve` names them]
#include <iostream>
#include <string>
#include <vector>

#include "layercast/controller.h"
#include "layercast/error.h"

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::cerr << "usage: minimal_controller PUBLISHER ENGINE...\n";
    return 2;
  }
  const std::string publisher = argv[1];
  layercast::Controller controller(std::vector<std::string>(argv + 2, argv + argc));
  std::string enter;
  bool all = true;
  do {
    all = true;
    for (const layercast::EngineOutcome& outcome : controller.ReloadWeights({.publisher = publisher})) {
      std::cout << outcome.endpoint << ": " << (outcome.ok ? "serves " : "failed, and serves ")
                << (outcome.version ? outcome.version->ToString() : "an unknown version")
                << (outcome.error ? std::string("; ") + outcome.error->what() : "") << std::endl;
      all = all && outcome.ok;
    }
  } while (std::getline(std::cin, enter));
  return all ? 0 : 1;
} catch (const layercast::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}

// Holds the steps of scripted_rank back: a test sees each one asked for, and says when it may go on.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

#include "src/base/unique_fd.h"
#include "tests/support/temp_folder.h"

namespace layercast::testing {

// Resource; one thread only.
class StepGate {
 public:
  StepGate() : asked_(Pipe("asked")), go_(Pipe("go")) {}

  std::string folder() const { return folder_.path(); }
  // Returns when a step was asked for that was not awaited before.
  void AwaitStep() const {
    pollfd wait{asked_.get(), POLLIN, 0};
    char step = 0;
    if (::poll(&wait, 1, 20'000) != 1 || ::read(asked_.get(), &step, 1) != 1) throw std::runtime_error("no step came");
  }
  // Forgets those that were asked for until now.
  void Drain() const {
    for (char step = 0; ::read(asked_.get(), &step, 1) == 1;) {
    }
  }
  // One more step may be answered, of those asked for and to come.
  void Allow(int steps = 1) const {
    for (int i = 0; i < steps; ++i) {
      if (::write(go_.get(), "!", 1) != 1) throw std::runtime_error("the pipe is full");
    }
  }

 private:
  UniqueFd Pipe(const char* name) const {
    const std::string path = folder_ / name;
    if (::mkfifo(path.c_str(), 0600) != 0) throw std::runtime_error("cannot make " + path);
    return UniqueFd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  }

  TempFolder folder_;
  UniqueFd asked_;
  UniqueFd go_;
};

}  // namespace layercast::testing

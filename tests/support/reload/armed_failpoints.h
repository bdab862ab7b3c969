// Failpoints for receivers that are made while this lives.
#pragma once

#include <cstdlib>
#include <string>

namespace layercast::testing {

class ArmedFailpoints {
 public:
  explicit ArmedFailpoints(const std::string& specification) {
    ::setenv("LAYERCAST_FAILPOINTS", specification.c_str(), 1);
  }
  ~ArmedFailpoints() { ::unsetenv("LAYERCAST_FAILPOINTS"); }
  ArmedFailpoints(const ArmedFailpoints&) = delete;
  ArmedFailpoints& operator=(const ArmedFailpoints&) = delete;
};

}  // namespace layercast::testing

// Which run of a trainer this process belongs to: the one place where the environment is asked.
#include <cstdlib>
#include <string>
#include <string_view>

#include "layercast/publisher.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

constexpr std::string_view kUnnamed = "none";  // what torchrun calls a run that nobody has named

// The variable's value, or empty if it is not set.
std::string NameIn(const char* variable) {
  const char* const value = std::getenv(variable);
  std::string name = value == nullptr ? "" : value;
  CheckName(std::string("run, from ") + variable + ",", name);
  return name;
}

}  // namespace

std::string RunFromEnvironment() {
  const std::string elastic = NameIn("TORCHELASTIC_RUN_ID");
  return elastic.empty() || elastic == kUnnamed ? NameIn("SLURM_JOB_ID") : elastic;
}

}  // namespace layercast

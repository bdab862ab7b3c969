// Why a manifest does not fit a model: what the load plan's checks found, and its wording. Value.
#pragma once

#include <string>
#include <vector>

namespace layercast {

// One line for each problem. Misfits come first, since other tensors may be missing because of them.
struct PlanProblems {
  std::vector<std::string> misfits;     // "layer ...: 'a' expected [8, 4] bf16, got [8, 2] bf16"
  std::vector<std::string> missing;     // names of tensors that should be there
  std::vector<std::string> repeated;    // "'a' and 'b' both fill ..."
  std::vector<std::string> unexpected;  // "There is no module or parameter named ..."

  bool empty() const { return misfits.empty() && missing.empty() && repeated.empty() && unexpected.empty(); }
  // Every problem, each introduced by its kind.
  std::vector<std::string> Lines() const;
  // All problems in one text: at most 20 of each kind, and how many more there are.
  std::string Summary() const;
};

}  // namespace layercast

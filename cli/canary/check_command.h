// The command by which `reload --check` has a canary judged: a shell's, which succeeds if the version is good.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>

namespace layercast::cli {

// Resource; one thread only. What the command prints goes to standard error: standard output is this program's own.
class CheckCommand {
 public:
  // Starts it, with these variables beside this process's own. Throws kResourceExhausted if there is no process.
  CheckCommand(const std::string& command, const std::map<std::string, std::string>& variables);
  ~CheckCommand();  // kills it, with all that it has started and that has not left its process group
  CheckCommand(const CheckCommand&) = delete;
  CheckCommand& operator=(const CheckCommand&) = delete;

  // Nullopt: it still runs; empty: it has succeeded; else how it has ended.
  std::optional<std::string> Ended();

 private:
  pid_t process_ = -1;
  std::optional<int> status_;  // once it has ended
};

}  // namespace layercast::cli

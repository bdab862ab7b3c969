// A child process of a test: started with fork and exec, spoken to by lines, killed or frozen, and reaped at the end.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "src/base/unique_fd.h"

namespace layercast::test {

// Resource; one thread only.
class ChildProcess {
 public:
  // `arguments[0]` is the program, by path or as PATH has it. Its standard input and output are pipes to here.
  explicit ChildProcess(const std::vector<std::string>& arguments);
  ~ChildProcess();  // kills what still runs
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // The next line of its standard output, without the newline; throws when none comes within 20 seconds.
  std::string ReadLine();
  void Signal(int signal) const;
  // SIGSTOP takes effect some time after it is sent: returns when it has.
  void Freeze() const;
  // Ends its standard input and reaps it; the exit status, or 128 + the signal that ended it.
  int Wait();

 private:
  pid_t pid_ = -1;
  UniqueFd input_;
  UniqueFd output_;
};

// The folder of the running test program, where the helpers lie that were built beside it.
std::string FolderOfThisProgram();

}  // namespace layercast::test

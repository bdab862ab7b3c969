// A child process of a test. It is started with fork and exec, talked to in lines, killed or frozen, and reaped at the
// end.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "src/base/unique_fd.h"

namespace layercast::test {

// Resource; one thread only.
class ChildProcess {
 public:
  // Starts a program. `arguments[0]` is its path, or a name that is looked up in PATH. Its standard input and output
  // are pipes to this object.
  explicit ChildProcess(const std::vector<std::string>& arguments);
  ~ChildProcess();  // kills what still runs
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Reads the next line of the child's standard output, without the newline. Throws if none comes within 20 seconds.
  std::string ReadLine();
  void Signal(int signal) const;
  // Stops the child. SIGSTOP takes effect some time after it is sent; this returns when it has.
  void Freeze() const;
  // Closes the child's standard input, and reaps it. Returns the exit status, or 128 + the signal that ended it.
  int Wait();

 private:
  pid_t pid_ = -1;
  UniqueFd input_;
  UniqueFd output_;
};

// The folder of the running test program, in which the helper programs that are built with it lie.
std::string FolderOfThisProgram();

}  // namespace layercast::test

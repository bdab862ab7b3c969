// Nothing but the headers that every test includes (CMakeLists.txt); gtest_main has the `main`.

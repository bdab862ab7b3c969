// Contains nothing: it is compiled for the headers that every test includes (CMakeLists.txt). gtest_main has the
// `main`.

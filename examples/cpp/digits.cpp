// digits.cpp: reads handwritten digits, on threads and in memory of the program's own. C++17.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory_resource>
#include <thread>
#include <vector>

#include <tilewright/tilewright.hpp>

#include "../c/images.h"

namespace {

// Two threads for a job: the caller, and one that is made for it.
struct Pair {
  template <class F> void parallel_for(std::size_t n, F f) {
    std::thread other([n, f] {
      for (std::size_t i = 1; i < n; i += 2) f(i);
    });
    for (std::size_t i = 0; i < n; i += 2) f(i);
    other.join();
  }
};

int read_digits(const char *path, const char *images_of) {
  std::pmr::synchronized_pool_resource memory;
  Pair threads;
  // The model is of our own compiler: we trust it as we do a program that we build.
  const tilewright::model model(path, tilewright::trust::origin, tilewright::options().memory(&memory).threads(&threads, 2));
  for (const auto &input : model.inputs()) std::cout << "input " << input.name << ": " << input.type << '\n';

  float *pixels = nullptr;
  const auto n = static_cast<std::int64_t>(read_images(images_of, &pixels));
  const std::vector<float> images(pixels, pixels + n * PIXELS);
  std::free(pixels);

  const auto outputs = model.run({{"image", {images.data(), {n, 1, 8, 8}}}});
  const tilewright::tensor &scores = outputs.at(0);
  std::cout << "digits:";
  for (std::int64_t i = 0; i < n; ++i) std::cout << ' ' << best(scores.data<float>() + 10 * i);
  std::cout << '\n';

  // A session writes where it is told, and finds the same bits.
  const tilewright::session session(model);
  std::vector<float> again(scores.size());
  std::vector<tilewright::view> from, to;
  from.emplace_back(images.data(), std::vector<std::int64_t>{n, 1, 8, 8});
  to.emplace_back(again.data(), std::vector<std::int64_t>{n, 10});
  session.run_into(from, to);
  if (!std::equal(again.begin(), again.end(), scores.begin<float>())) return 1;

  // What does not fit says all that is wrong with it.
  try {
    model.run({{"picture", {images.data(), {n, 8, 8}}}});
    return 1;
  } catch (const tilewright::error &error) {
    std::cout << error.name() << ": " << error.what() << '\n';
    if (error.status() != TW_ERROR_INPUT || error.problems().size() != 2) return 1;
  }
  const tilewright::cancel stop;
  stop.request();
  try {
    model.run({{"image", {images.data(), {n, 1, 8, 8}}}}, &stop);
    return 1;
  } catch (const tilewright::error &error) {
    return error.status() == TW_ERROR_CANCELLED ? 0 : 1;
  }
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 3) {
    std::cerr << "usage: digits MODEL.twm IMAGES.pb\n";
    return 2;
  }
  try {
    return read_digits(argv[1], argv[2]);
  } catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}

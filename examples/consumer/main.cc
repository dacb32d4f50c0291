#include <iostream>

#include "ttr/version.h"

int main() { std::cout << "ttr " << ttr::Version() << "\n"; }

#!/bin/sh
# Stands in for `tilewright run MODEL --inputs DATA --outputs OUT` in the tests of xtask: does what the test
# wrote into the data's folder.
DATA=$4 OUT=$6
. "$DATA/script.sh"

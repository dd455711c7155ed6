#!/usr/bin/env bash
# An environment with Horovod and Muster, for the tests that need the real Horovod:
#
#   tests/frameworks/build_horovod.sh [PYTHON]        into .cache/horovod, in 3 minutes on 2 cores
#
# Horovod 0.28.1 is a source distribution that compiles with C++14; PyTorch's headers need C++17.
# CMake puts its own -std after CXXFLAGS, so a wrapper of the compiler changes it. The wheel is kept,
# and not built again.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cache=${MUSTER_TEST_HOROVOD:-$root/.cache/horovod}
python=${1:-python3}
version=0.28.1

[ -x "$cache/bin/python" ] || "$python" -m venv "$cache"
pip=("$cache/bin/python" -m pip --disable-pip-version-check)
if [ ! -x "$cache/bin/horovodrun" ]; then
    # Horovod's build needs pkg_resources, which later versions of setuptools do not have
    "${pip[@]}" install --quiet "setuptools<81" wheel packaging cloudpickle psutil pyyaml \
        torch==2.13.0 numpy scikit-learn
    if ! compgen -G "$cache/wheel/horovod-$version-*.whl" >/dev/null; then
        command -v cmake >/dev/null && command -v g++ >/dev/null || {
            echo "building Horovod needs cmake and g++" >&2
            exit 1
        }
        work=$(mktemp -d)
        trap 'rm -rf "$work"' EXIT
        cat >"$work/c++" <<'WRAPPER'
#!/usr/bin/env bash
exec g++ "${@/#-std=gnu++14/-std=gnu++17}"
WRAPPER
        chmod +x "$work/c++"
        PATH=$cache/bin:$PATH CXX=$work/c++ MAKEFLAGS=-j2 \
            HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 \
            HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_CPU_OPERATIONS=GLOO \
            "${pip[@]}" wheel --quiet --no-build-isolation --no-deps --no-binary horovod \
            --wheel-dir "$cache/wheel" "horovod==$version"
    fi
    "${pip[@]}" install --quiet --no-deps "$cache"/wheel/horovod-$version-*.whl
fi
"${pip[@]}" install --quiet --editable "$root"

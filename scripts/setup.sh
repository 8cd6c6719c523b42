# Sourced by the scripts beside it: everything between a bare machine and a built package.
# Each step looks first and does nothing where nothing is missing, so that a second run is quick.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=.venv/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore

say() { printf '== %s\n' "$*"; }

die() {
    printf '%s\n' "$@" | fold -s -w 80 >&2
    exit 1
}

# --- system packages -------------------------------------------------------------------------

# need PACKAGE COMMAND...: the command tells whether what the package brings is there already.
missing_packages=()
need() {
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing_packages+=("$package")
}

has_python() { python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))'; }
has_venv() { "$python" -c 'import pip' || python3 -c 'import ensurepip, venv'; }
has_python_headers() {
    python3 -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'
}
has_cxx() { echo '#include <atomic>' | "${CXX:-g++}" -x c++ -fsyntax-only -; }
has_objcxx() {
    local headers
    headers=$(dirname "$(g++ -print-file-name=include/objc/objc.h)")/..
    echo '#include <objc/runtime.h>' |
        "${CXX:-g++}" -x objective-c++ -idirafter "$headers" -fsyntax-only -
}
has_header() { echo "#include <$1>" | "${CXX:-g++}" -x c++ -fsyntax-only -; }

need_to_build() {
    need python3 has_python
    need python3-venv has_venv
    need python3-dev has_python_headers
    need g++ has_cxx
    need gobjc++ has_objcxx
}

need_to_test() {
    need libgtest-dev has_header gtest/gtest.h
    need libbenchmark-dev has_header benchmark/benchmark.h
    need ccache command -v ccache
}

install_missing_packages() {
    [ ${#missing_packages[@]} -gt 0 ] || return 0
    local names="${missing_packages[*]}" as_root=()
    if ! command -v apt-get >/dev/null; then
        die "These packages are missing (Debian names): $names" \
            "This machine has no apt-get, so please install their like and run this again."
    fi
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            die "These packages are missing: $names" \
                "Neither root nor sudo is at hand. As root, run:" "  apt-get install $names"
        fi
        as_root=(sudo)
        [ -t 0 ] || as_root=(sudo -n) # nobody there to type a password
    fi
    say "Installing system packages: $names"
    local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
    local log bundle=/etc/ssl/certs/ca-certificates.crt
    log=$(mktemp)
    # A bundle that no package made holds the owner's own authorities (a proxy's, say). The package
    # ca-certificates, which python3-venv brings, would replace it, so it is handed over first.
    if [ -s $bundle ] && ! dpkg -s ca-certificates >/dev/null 2>&1; then
        "${as_root[@]}" install -D -m 644 $bundle /usr/local/share/ca-certificates/kept-bundle.crt
    fi
    if ! { "${apt[@]}" update && "${apt[@]}" install --no-install-recommends -y \
        "${missing_packages[@]}"; } </dev/null >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        die "apt-get could not install: $names" "As root, run:" \
            "  apt-get update && apt-get install $names"
    fi
    rm -f "$log"
    has_python || die "Python 3.10 or newer is needed; python3 here is $(python3 --version 2>&1)."
}

# --- .venv and the package -------------------------------------------------------------------

# once NAME HASH COMMAND...: runs the command unless it last succeeded with the same hash.
once() {
    local stamp=.venv/stamp-$1 hash=$2
    shift 2
    [ "$(cat "$stamp" 2>/dev/null)" = "$hash" ] && return 0
    rm -f "$stamp"
    "$@"
    echo "$hash" >"$stamp"
}

hash_of() { find "$@" -type f ! -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum | sha256sum; }

pip_install() { "$python" -m pip install -q --progress-bar off -c scripts/constraints.txt "$@"; }

install_build_tools() {
    say "Installing build tools into .venv (pinned in scripts/constraints.txt)"
    pip_install cmake ninja pybind11 scikit-build-core
}

install_package_now() {
    say "Building and installing muser into .venv (the first time takes minutes)"
    PATH=$PWD/.venv/bin:$PATH pip_install --no-build-isolation ".${1:+[$1]}"
}

# install_package [EXTRA]: EXTRA is `dev` for the tools of scripts/test and scripts/lint; an
# environment that has them keeps them.
install_package() {
    local extra=${1-} sources
    if ! "$python" -c 'import pip' 2>/dev/null; then
        say "Creating .venv with $(python3 --version)"
        python3 -m venv --clear .venv
    fi
    once tools "$(hash_of scripts/constraints.txt)" install_build_tools
    sources=$(hash_of CMakeLists.txt cmake cpp metal python pyproject.toml README.md \
        scripts/constraints.txt)
    ! grep -qs '^dev' .venv/stamp-package || extra=dev
    once package "$extra $sources" install_package_now "$extra"
}

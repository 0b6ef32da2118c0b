# What a build needs beside Rust. Sourced by the Makefile: installs what is missing where it may, names it where not.
# Sets CMAKE (LightGBM needs 3.28 or newer; Debian 12 has an older one).

cache="${XDG_CACHE_HOME:-$HOME/.cache}/memslate"

fail() {
    echo "memslate: $1" >&2
    exit 1
}

# Installs Debian packages: $1 says what they are for, the rest are their names.
need_packages() {
    what="$1"
    shift
    if command -v apt-get >/dev/null 2>&1; then
        if [ "$(id -u)" = 0 ]; then
            sudo=""
        elif sudo -n true >/dev/null 2>&1; then
            sudo="sudo"
        else
            fail "$what is missing, and there is no right to install it here. Run: sudo apt-get install $*"
        fi
        echo "memslate: installing $* ($what)" >&2
        $sudo apt-get update -qq >&2 && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >&2 ||
            fail "$what could not be installed. Run: apt-get install $*"
    else
        fail "$what is missing. Install it with your system's package manager (Debian's name: $*)"
    fi
}

# The names that bindgen looks for; libclang-cpp, which other packages bring, is another library.
have_libclang() {
    [ -n "${LIBCLANG_PATH:-}" ] && return 0
    for folder in /usr/lib/llvm-*/lib /usr/lib/*-linux-gnu /usr/lib64 /usr/lib /usr/local/lib; do
        for library in "$folder"/libclang.so* "$folder"/libclang-[0-9]*.so*; do
            [ -e "$library" ] && return 0
        done
    done
    return 1
}

cmake_is_new() {
    version=$("$1" --version 2>/dev/null | sed -n 's/^cmake version \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
    [ -n "$version" ] || return 1
    set -- $version
    [ "$1" -gt 3 ] || { [ "$1" -eq 3 ] && [ "$2" -ge 28 ]; }
}

command -v cargo >/dev/null 2>&1 || fail "Rust is missing. Install it from https://rustup.rs"
command -v c++ >/dev/null 2>&1 || need_packages "a C++ compiler" build-essential
command -v python3 >/dev/null 2>&1 || need_packages "python3" python3 python3-pip
python3 -m pip --version >/dev/null 2>&1 || need_packages "pip for python3" python3-pip
have_libclang || need_packages "libclang" libclang-dev

CMAKE="${CMAKE:-cmake}"
if ! cmake_is_new "$CMAKE"; then
    CMAKE="$cache/cmake/cmake/data/bin/cmake"
    if ! cmake_is_new "$CMAKE"; then
        echo "memslate: installing CMake into $cache/cmake" >&2
        python3 -m pip install -q --upgrade --target "$cache/cmake" 'cmake>=3.28,<4' >&2 ||
            fail "CMake 3.28 or newer is missing and could not be installed from PyPI. Install it and set CMAKE to it"
        cmake_is_new "$CMAKE" || fail "the CMake of PyPI does not run here. Install CMake 3.28 or newer and set CMAKE"
    fi
fi
export CMAKE

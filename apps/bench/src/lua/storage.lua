-- What every storage of the measured cluster can do.
function bench_add(a, b)
    return a + b
end

// The comparison with other launchers, in a module of its own so that golaunch's packages are what ships.
module github.com/golaunch/golaunch/tools/bench

go 1.26.0

require (
	github.com/golaunch/golaunch v0.0.0
	golang.org/x/sys v0.49.0
)

replace github.com/golaunch/golaunch => ../..

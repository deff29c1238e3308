module github.com/parley-project/parley/bench

go 1.26.0

require (
	github.com/parley-project/parley v0.0.0
	modernc.org/sqlite v1.60.0
)

replace github.com/parley-project/parley => ../

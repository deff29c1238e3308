//go:build race

package executor

// cutsEvery thins the moments of the crash tests out where everything is slow: the
// runs without the race detector try all of them.
const cutsEvery = 3

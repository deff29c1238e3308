//go:build !race

package executor

const cutsEvery = 1

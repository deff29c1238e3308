//go:build !race

package agents_test

const raceFlag = "-race=false"

//go:build !linux

package chaos_test

// hasMesh: the loopback has one address, so that brokers share their ways.
const hasMesh = false

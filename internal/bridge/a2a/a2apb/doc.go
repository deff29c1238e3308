// Package a2apb holds the messages and the service of A2A 1.0 over gRPC (A2A
// specification 1.0 §10), generated from the official interface definition.
//
// a2a.proto is specification/a2a.proto of github.com/a2aproject/A2A at tag
// v1.0.1, unchanged, under the Apache License 2.0 (LICENSE beside it). Its Go
// package is named by the generator, not by its go_package option.
package a2apb

//go:generate sh -c "cd generate && go run . .."

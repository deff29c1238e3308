// Package interop has no code, only tests: package jsonrpc against programs
// that were made with other people's JSON-RPC libraries, in both roles, over
// standard input and output, sockets and HTTP. The programs are in cmd and
// node; the module is one of its own so that their dependencies stay here.
package interop

// Package rpchttp carries JSON-RPC 2.0 over HTTP.
package rpchttp

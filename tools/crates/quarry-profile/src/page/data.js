// SPDX-License-Identifier: MIT
"use strict";
const by = id => document.getElementById(id);
const data = JSON.parse(by("data").textContent);
const diff = data.diff;

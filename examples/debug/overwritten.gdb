# The message is right when it is built, and something else when it is printed. Who changes it?
# Lines with "=>" say what is to be seen, as regular expressions, in this order. Addresses and new values vary.
set pagination off
set confirm off
break build_message
# => Breakpoint 1 at .*message\.c
run
# => Breakpoint 1, build_message \(name=.*"world"\)
advance 21
# The function's last line: the message is complete.
print message
# => \$1 = "hello world!\\n
# The first letter, by its address: the name `message` ends with the function.
watch -location message[0]
# => Hardware watchpoint 2: -location message\[0\]
continue
# The debugger stops behind the store: in what main called after build_message had ended, which got the same piece of
# the stack. That is fputs, or the dynamic linker on its way to it.
# => Hardware watchpoint 2: -location message\[0\]
# => Old value = 104 'h'
# => New value = -?\d+
backtrace
# => #\d+ .*main
kill
quit
